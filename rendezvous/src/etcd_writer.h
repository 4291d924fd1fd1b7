// EtcdWriter: changes that are carried out exactly once, although a call whose answer is lost is
// made again, and although a member that was stopped may carry out an old one much later. Every
// change also moves the writer's mark, a key of its own, on the condition that nothing else has;
// the mark's value tells which change was the last. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "etcd_client.h"

namespace dtrun::rendezvous {

class EtcdWriter {
 public:
  /// @param mark the key that nobody else writes
  /// @param lease of the mark; 0: none
  EtcdWriter(const EtcdOptions& options, const Interrupt& interrupt, std::string mark,
             std::int64_t lease)
      : client_(options, interrupt), mark_(std::move(mark)), lease_(lease) {}

  EtcdClient& client() { return client_; }

  /// The ranges in the reply are those of else_range(), where the conditions did not hold.
  /// @throws Error as EtcdClient::txn(); after kConnection nobody knows whether it was carried out,
  /// but it will not be any more once the next change has been
  EtcdTxnReply change(const EtcdTxn& txn, base::Deadline deadline);

 private:
  EtcdClient client_;
  const std::string mark_;
  const std::int64_t lease_;
  std::int64_t marked_at_ = 0;  ///< the revision of the last change, as far as it is known
  std::int64_t number_ = 0;     ///< of the last change
};

}  // namespace dtrun::rendezvous
