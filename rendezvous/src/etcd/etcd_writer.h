// EtcdWriter: changes that are carried out exactly once, although a call whose answer is lost is
// made again, and although a member that was stopped may carry out an old one much later. Every
// change also moves the writer's mark, a key of its own, on the condition that nothing else has;
// the mark's value tells which change was the last. Where the mark's lease has run out, etcd
// refuses the change, and all older ones, too. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "etcd/etcd_client.h"
#include "etcd/etcd_marks.h"

namespace dtrun::rendezvous {

class EtcdWriter {
 public:
  /// All are borrowed.
  EtcdWriter(const EtcdOptions& options, const Interrupt& interrupt, EtcdMarks& marks)
      : client_(options, interrupt), marks_(marks) {}

  EtcdClient& client() { return client_; }

  /// The ranges in the reply are those of else_range(), where the conditions did not hold.
  /// @throws Error as EtcdClient::txn(); after kConnection nobody knows whether it was carried out,
  /// but it will not be any more once the next change has been
  EtcdTxnReply change(const EtcdTxn& txn, base::Deadline deadline);

 private:
  EtcdTxnReply send(const EtcdTxn& txn, const std::string& number, base::Deadline deadline);
  void take_another_mark(base::Deadline deadline);

  EtcdClient client_;
  EtcdMarks& marks_;
  std::optional<EtcdMark> mark_;  ///< from the first change on
  std::int64_t marked_at_ = 0;    ///< the revision of the last change, as far as it is known
  std::int64_t number_ = 0;       ///< of the last change
};

}  // namespace dtrun::rendezvous
