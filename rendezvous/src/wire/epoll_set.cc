#include "wire/epoll_set.h"

#include <algorithm>
#include <cerrno>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {

EpollSet::EpollSet() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!fd_) throw base::system_error("cannot make an epoll descriptor", errno);
}

bool EpollSet::add(int fd, std::uint32_t events, epoll_data tag) {
  epoll_event event{events, tag};
  return ::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void EpollSet::change(int fd, std::uint32_t events, epoll_data tag) {
  epoll_event event{events, tag};
  DT_CHECK(::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void EpollSet::remove(int fd) {
  DT_CHECK(::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0);
}

std::span<epoll_event> EpollSet::ready(std::span<epoll_event> events) {
  const int count = ::epoll_wait(fd_.get(), events.data(), static_cast<int>(events.size()), 0);
  return events.first(static_cast<std::size_t>(std::max(count, 0)));
}

}  // namespace dtrun::rendezvous
