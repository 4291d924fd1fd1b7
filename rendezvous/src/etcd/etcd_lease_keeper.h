// EtcdLeaseKeeper: a lease, and the thread that keeps it alive until the end of its owner. Then it
// is left to run out: others may still read what hangs on it.
#pragma once

#include <chrono>
#include <thread>

#include "etcd/etcd_client.h"

namespace dtrun::rendezvous {

class EtcdLeaseKeeper {
 public:
  /// @throws Error as EtcdClient::grant_lease()
  EtcdLeaseKeeper(const EtcdOptions& options, std::chrono::seconds ttl, base::Deadline deadline);
  ~EtcdLeaseKeeper();
  EtcdLeaseKeeper(const EtcdLeaseKeeper&) = delete;
  EtcdLeaseKeeper& operator=(const EtcdLeaseKeeper&) = delete;

  std::int64_t id() const { return lease_.id; }

 private:
  void keep();

  Interrupt interrupt_;
  EtcdClient client_;
  const EtcdLease lease_;
  std::thread thread_;
};

}  // namespace dtrun::rendezvous
