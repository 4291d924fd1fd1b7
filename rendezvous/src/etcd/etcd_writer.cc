#include "etcd/etcd_writer.h"

#include "dtrun/base/error.h"

namespace dtrun::rendezvous {

using base::Deadline;
using base::Error;
using base::ErrorCode;

EtcdTxnReply EtcdWriter::change(const EtcdTxn& txn, Deadline deadline) {
  const std::string number = std::to_string(++number_);
  if (!mark_) mark_ = marks_.make(deadline);
  while (true) {
    EtcdTxnReply reply = send(txn, number, deadline);
    if (reply.succeeded) {
      marked_at_ = reply.revision;
      return reply;
    }
    const EtcdRange mark = reply.range(reply.ranges.empty() ? 0 : reply.ranges.size() - 1);
    reply.ranges.pop_back();
    const std::int64_t marked_at = mark.list.empty() ? 0 : mark.list[0].mod_revision;
    if (marked_at == marked_at_) return reply;
    if (marked_at == 0) {
      take_another_mark(deadline);
      continue;
    }
    // An earlier copy was carried out: of this change, or of one that was given up.
    marked_at_ = marked_at;
    if (mark.list[0].value != number) continue;
    reply.succeeded = true;
    reply.revision = marked_at;
    reply.ranges.clear();
    return reply;
  }
}

// The change with its mark. One that is still to be made is refused where the mark's lease has run
// out; one that was made before has gone, which is seen by its condition.
EtcdTxnReply EtcdWriter::send(const EtcdTxn& txn, const std::string& number, Deadline deadline) {
  while (true) {
    EtcdTxn marked = txn;
    marked.if_modified_at(mark_->key, marked_at_)
        .then_put(mark_->key, number, mark_->lease)
        .else_range(EtcdKeys::one(mark_->key));
    try {
      return client_.txn(marked, deadline);
    } catch (const Error& error) {
      const bool has_lost_lease = error.code() == ErrorCode::kNotFound &&
                                  marks_.lease() == EtcdMarks::Lease::kOwn && !deadline.expired();
      if (!has_lost_lease) throw;
    }
    take_another_mark(deadline);
  }
}

// Only a change that was sent once, and refused, is known not to have been carried out.
void EtcdWriter::take_another_mark(Deadline deadline) {
  if (marks_.lease() == EtcdMarks::Lease::kOwn) {
    if (client_.times_sent() > 1)
      throw Error(ErrorCode::kConnection, "the answer to a change was lost",
                  "the lease of this process's marks in etcd has run out since: nobody knows "
                  "whether it was made");
    mark_ = marks_.make_instead_of(*mark_, deadline);
  }
  marked_at_ = 0;
}

}  // namespace dtrun::rendezvous
