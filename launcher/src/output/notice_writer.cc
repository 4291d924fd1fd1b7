#include "output/notice_writer.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "dtrun/base/detached_thread.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;

constexpr std::size_t kMostWaitingBytes = 1 << 20;
// A reader does not notice this delay, and within it the notice keeps its place among the ranks'
// lines.
constexpr auto kNoticePatience = std::chrono::milliseconds(50);

}  // namespace

struct NoticeWriter::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting;
  std::size_t dropped = 0;
  bool writing = false;
  bool behind = false;  // somebody has waited for it in vain
  bool ends = false;

  bool idle() const { return waiting.empty() && !writing; }

  void write_on(int fd) {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return !waiting.empty() || ends; });
      if (waiting.empty()) return;
      std::string text = std::exchange(waiting, {});
      if (const std::size_t lost = std::exchange(dropped, 0); lost > 0)
        text += fmt::format("dtrun: {} bytes of messages were dropped here\n", lost);
      writing = true;
      lock.unlock();
      write_all(fd, text);
      lock.lock();
      writing = false;
      behind = behind && !waiting.empty();
      changed.notify_all();
    }
  }
};

NoticeWriter::NoticeWriter(int fd) : shared_(std::make_shared<Shared>()) {
  base::start_detached_thread([shared = shared_, fd] { shared->write_on(fd); });
}

NoticeWriter::~NoticeWriter() {
  const std::lock_guard lock(shared_->mutex);
  shared_->ends = true;
  shared_->changed.notify_all();
}

void NoticeWriter::put(std::string_view text) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->waiting.size() + text.size() > kMostWaitingBytes) {
    shared_->dropped += text.size();
    return;
  }
  shared_->waiting += text;
  shared_->changed.notify_all();
  if (shared_->behind) return;
  shared_->behind = !shared_->changed.wait_until(lock, Deadline::after(kNoticePatience).when(),
                                                 [this] { return shared_->idle(); });
}

bool NoticeWriter::flush(Deadline deadline) {
  std::unique_lock lock(shared_->mutex);
  const auto idle = [this] { return shared_->idle(); };
  if (!deadline.is_never()) return shared_->changed.wait_until(lock, deadline.when(), idle);
  shared_->changed.wait(lock, idle);
  return true;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return;
    // Somebody who shares the description made it non-blocking.
    pollfd writable{fd, POLLOUT, 0};
    ::poll(&writable, 1, -1);
  }
}

}  // namespace dtrun::launcher
