#include "etcd/etcd_lease_keeper.h"

#include "dtrun/base/log.h"

namespace dtrun::rendezvous {

using base::Deadline;
using base::Error;
using base::ErrorCode;

EtcdLeaseKeeper::EtcdLeaseKeeper(const EtcdOptions& options, std::chrono::seconds ttl,
                                 Deadline deadline)
    : client_(options, interrupt_),
      lease_(client_.grant_lease(ttl, deadline)),
      thread_([this] { keep(); }) {}

EtcdLeaseKeeper::~EtcdLeaseKeeper() {
  interrupt_.raise();
  thread_.join();
}

void EtcdLeaseKeeper::keep() {
  while (true) {
    try {
      interrupt_.pause(Deadline::after(std::chrono::milliseconds(lease_.ttl) / 3));
      if (client_.keep_lease_alive(lease_.id, Deadline::after(lease_.ttl)).count() > 0) continue;
      // Whoever writes next is told so by etcd.
      base::log::warning(base::log::Component::kStore, "the lease of {} s at etcd {} has run out",
                         lease_.ttl.count(), client_.members());
      return;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kAborted) return;
      base::log::warning(base::log::Component::kStore, "{}", error.what());
    }
  }
}

}  // namespace dtrun::rendezvous
