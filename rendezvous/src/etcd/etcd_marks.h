// EtcdMarks: the marks that the writers of one store leave in etcd (etcd_writer.h): their names,
// and the lease on which they hang, so that they go after a process that was killed. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "etcd/etcd_lease_keeper.h"
#include "etcd/etcd_store_keys.h"

namespace dtrun::rendezvous {

struct EtcdMark {
  std::string key;  ///< that nobody else writes
  std::int64_t lease = 0;
};

class EtcdMarks {
 public:
  enum class Lease {
    kOfTheStore,  ///< all that the store writes hangs on it, and is gone where it has run out
    kOwn,         ///< for the marks alone: where it has run out there is another one
  };

  /// @param lease the store's; 0: the marks get one of their own, of `ttl`, with the first of them
  EtcdMarks(const EtcdOptions& options, const EtcdStoreKeys& keys, std::int64_t lease,
            std::chrono::seconds ttl);
  /// Removes them, where etcd answers.
  ~EtcdMarks();
  EtcdMarks(const EtcdMarks&) = delete;
  EtcdMarks& operator=(const EtcdMarks&) = delete;

  Lease lease() const { return lease_ == 0 ? Lease::kOwn : Lease::kOfTheStore; }
  /// A new one. @throws Error as EtcdClient::grant_lease()
  EtcdMark make(base::Deadline deadline) { return make_beside(0, deadline); }
  /// Another, after etcd has said that the lease of this one has run out; only of Lease::kOwn.
  EtcdMark make_instead_of(const EtcdMark& lost, base::Deadline deadline) {
    return make_beside(lost.lease, deadline);
  }

 private:
  EtcdMark make_beside(std::int64_t lost_lease, base::Deadline deadline);
  EtcdMark next();

  const EtcdOptions& options_;
  const EtcdStoreKeys& keys_;
  const std::int64_t lease_;
  const std::chrono::seconds ttl_;
  std::mutex mutex_;
  std::int64_t made_ = 0;                    ///< guarded by mutex_
  std::shared_ptr<EtcdLeaseKeeper> keeper_;  ///< of the own lease; guarded by mutex_
};

}  // namespace dtrun::rendezvous
