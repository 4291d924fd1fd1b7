#include "etcd/etcd_marks.h"

#include "dtrun/base/error.h"
#include "wire/answer_deadline.h"

namespace dtrun::rendezvous {

using base::Deadline;

EtcdMarks::EtcdMarks(const EtcdOptions& options, const EtcdStoreKeys& keys, std::int64_t lease,
                     std::chrono::seconds ttl)
    : options_(options), keys_(keys), lease_(lease), ttl_(ttl) {}

EtcdMarks::~EtcdMarks() {
  if (made_ == 0) return;
  const std::int64_t own = keeper_ ? keeper_->id() : 0;
  keeper_.reset();
  try {
    const Interrupt interrupt;
    EtcdClient client(options_, interrupt);
    const Deadline deadline = Deadline::after(kCourtesyBudget);
    own != 0 ? client.revoke_lease(own, deadline)
             : static_cast<void>(client.remove(keys_.all_marks(), deadline));
  } catch (const base::Error&) {
    // They go with the lease.
  }
}

// A lease is asked for without the mutex: threads with shorter deadlines must not wait for it. Of
// several that are asked for at once one is kept; the others have no keys and run out.
EtcdMark EtcdMarks::make_beside(std::int64_t lost_lease, Deadline deadline) {
  if (lease_ == 0) {
    std::unique_lock lock(mutex_);
    if (keeper_ && keeper_->id() != lost_lease) return next();
    lock.unlock();
    auto keeper = std::make_shared<EtcdLeaseKeeper>(options_, ttl_, deadline);
    lock.lock();
    // The old lease is destroyed after the mutex is free, because that waits for its thread.
    if (!keeper_ || keeper_->id() == lost_lease) keeper_.swap(keeper);
    EtcdMark mark = next();
    lock.unlock();
    return mark;
  }
  const std::lock_guard lock(mutex_);
  return next();
}

EtcdMark EtcdMarks::next() {
  return {keys_.mark(++made_), keeper_ ? keeper_->id() : lease_};
}

}  // namespace dtrun::rendezvous
