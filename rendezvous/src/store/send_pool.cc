#include "store/send_pool.h"

#include <sys/socket.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "dtrun/base/blocked_signals.h"
#include "dtrun/base/cpu_list.h"

namespace dtrun::rendezvous {
namespace {

// So many a thread takes at a time: one that is late, or is not run, leaves the others little to
// wait for.
constexpr std::size_t kShare = 32;

void send_one(PendingSend& send) {
  const ssize_t n =
      ::send(send.fd, send.bytes.data(), send.bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) send.sent = static_cast<std::size_t>(n);
}

}  // namespace

SendPool::~SendPool() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  has_batch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Where fewer can be had, fewer help: the caller alone does it, too.
void SendPool::start_threads() {
  if (std::exchange(is_started_, true)) return;
  const std::size_t most = std::min(kMostThreads, base::allowed_cpus().size());
  const base::BlockedSignals inherited_by_the_threads;
  try {
    while (threads_.size() + 1 < most) threads_.emplace_back([this] { help(); });
  } catch (const std::system_error&) {
  }
}

void SendPool::send_all(std::span<PendingSend> sends) {
  start_threads();
  {
    const std::lock_guard lock(mutex_);
    batch_ = sends;
    next_ = 0;
    ++batches_;
  }
  has_batch_.notify_all();
  take_part(sends);
  std::unique_lock lock(mutex_);
  batch_ = {};  // who wakes only now finds nothing
  is_idle_.wait(lock, [this] { return helping_ == 0; });
}

void SendPool::help() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    has_batch_.wait(lock, [&] { return is_ending_ || batches_ != seen; });
    if (is_ending_) return;
    seen = batches_;
    const std::span<PendingSend> sends = batch_;
    if (sends.empty()) continue;
    ++helping_;
    lock.unlock();
    take_part(sends);
    lock.lock();
    if (--helping_ == 0) is_idle_.notify_one();
  }
}

void SendPool::take_part(std::span<PendingSend> sends) {
  while (true) {
    const std::size_t first = next_.fetch_add(kShare);
    if (first >= sends.size()) return;
    for (PendingSend& send : sends.subspan(first, std::min(kShare, sends.size() - first)))
      send_one(send);
  }
}

}  // namespace dtrun::rendezvous
