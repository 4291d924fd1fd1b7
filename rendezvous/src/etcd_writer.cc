#include "etcd_writer.h"

namespace dtrun::rendezvous {

EtcdTxnReply EtcdWriter::change(const EtcdTxn& txn, base::Deadline deadline) {
  const std::string number = std::to_string(++number_);
  while (true) {
    EtcdTxn marked = txn;
    marked.if_modified_at(mark_, marked_at_)
        .then_put(mark_, number, lease_)
        .else_range(EtcdKeys::one(mark_));
    EtcdTxnReply reply = client_.txn(marked, deadline);
    if (reply.succeeded) {
      marked_at_ = reply.revision;
      return reply;
    }
    const EtcdRange mark = reply.range(reply.ranges.empty() ? 0 : reply.ranges.size() - 1);
    reply.ranges.pop_back();
    const std::int64_t marked_at = mark.list.empty() ? 0 : mark.list[0].mod_revision;
    if (marked_at == marked_at_) return reply;
    // An earlier copy was carried out: of this change, or of one that was given up.
    marked_at_ = marked_at;
    if (marked_at == 0 || mark.list[0].value != number) continue;
    reply.succeeded = true;
    reply.revision = marked_at;
    reply.ranges.clear();
    return reply;
  }
}

}  // namespace dtrun::rendezvous
