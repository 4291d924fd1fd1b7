#include "ready_sockets.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "dtrun/base/error.h"
#include "world.h"

namespace dtrun::collectives::cpu {

using base::system_error;
using base::UniqueFd;

void Readiness::note(std::uint32_t events) {
  ready_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) ended_ = true;
}

Readiness& ReadySockets::add(int fd, Direction direction) {
  if (!epoll_) {
    UniqueFd made(::epoll_create1(EPOLL_CLOEXEC));
    if (!made) throw system_error("make an epoll instance");
    world_.watch_ready(made.get());
    epoll_ = std::move(made);
  }
  epoll_event event{};
  event.events = (direction == Direction::in ? EPOLLIN : EPOLLOUT) | EPOLLRDHUP | EPOLLET;
  event.data.u64 = sockets_.size();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw system_error("watch the other ranks", World::kLeaveThemOpen);
  return sockets_.emplace_back(tries_, sockets_.size());
}

void ReadySockets::look() {
  tries_.may_try = false;
  polls_ = 0;
  if (!epoll_) return;
  // What does not fit is told at the next look, and before a sleep.
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  if (count < 0 && errno != EINTR)
    throw system_error("watch the other ranks", World::kLeaveThemOpen);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    Readiness& socket = sockets_[event.data.u64];
    socket.note(event.events);
    any_ended_ |= socket.has_ended();
  }
}

void ReadySockets::look_or_try() {
  // Of many, the one that is waited for may have a long time to wait for its turn.
  constexpr std::size_t kFew = 6;
  // The end of a connection that nobody reads is seen by look() alone.
  constexpr int kPolls = 16;
  if (sockets_.size() > kFew || polls_ == kPolls) return look();
  ++polls_;
  // Of those whose turn it was, nobody asked.
  if (tries_.may_try) tries_.after = -1;
  tries_.may_try = true;
}

void ReadySockets::ring_when_ready() {
  if (epoll_) world_.ring_when_ready(epoll_.get());
}

}  // namespace dtrun::collectives::cpu
