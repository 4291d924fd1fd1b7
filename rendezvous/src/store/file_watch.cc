#include "store/file_watch.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dtrun/base/log.h"

namespace dtrun::rendezvous {
namespace {

constexpr auto kWhereNotTold = std::chrono::milliseconds(50);

}  // namespace

FileWatch::FileWatch(int fd, Tells tells)
    : inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      longest_sleep_(tells == Tells::every_change ? base::Deadline::Duration::max()
                                                  : kWhereNotTold) {
  // Watched by its descriptor, because the path may lead to another file by now.
  const std::string file = fmt::format("/proc/self/fd/{}", fd);
  if (inotify_ && ::inotify_add_watch(inotify_.get(), file.c_str(), IN_MODIFY) >= 0) return;
  base::log::info(base::log::Component::kStore,
                  "no inotify here ({}): the store file is looked at every {}",
                  strerrordesc_np(errno), base::format_duration(kWhereNotTold));
  longest_sleep_ = kWhereNotTold;
  inotify_.reset();
}

void FileWatch::await(base::Deadline deadline) {
  if (longest_sleep_ != base::Deadline::Duration::max())
    deadline = deadline.earlier(base::Deadline::after(longest_sleep_));
  pollfd wait{inotify_.get(), POLLIN, 0};  // a descriptor of -1 is never ready
  if (::poll(&wait, 1, deadline.poll_timeout_ms()) <= 0) return;
  char events[4096];
  while (::read(inotify_.get(), events, sizeof events) > 0) continue;
}

}  // namespace dtrun::rendezvous
