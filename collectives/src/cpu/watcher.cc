// The watcher thread of a World: one epoll instance over control connections, peers' pidfds, the
// listening socket and the data sockets.
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "data_hello.h"
#include "dtrun/base/futex.h"
#include "dtrun/base/socket.h"
#include "quiet_thread.h"
#include "world.h"

namespace dtrun::collectives::cpu {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::system_error;
using base::UniqueFd;

namespace {

// What an epoll event is about: a kind and a number (world rank, or fd).
enum class Source : std::uint32_t { stop, listener, pending, control, process, data };

std::uint64_t tag(Source source, int number) {
  return (static_cast<std::uint64_t>(source) << 32) | static_cast<std::uint32_t>(number);
}

// The launcher writes the cause of a death a moment after the kernel has closed the dead rank's
// connections.
constexpr auto kCauseGrace = std::chrono::seconds(1);

}  // namespace

void World::watch_fd(int fd, std::uint32_t events, std::uint64_t event_tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = event_tag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw system_error("watch a connection");
}

void World::watch_data(int fd) {
  watch_fd(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, tag(Source::data, fd));
}

void World::start_watcher() {
  watch_fd(stop_event_.get(), EPOLLIN, tag(Source::stop, 0));
  bool all_local = true;
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank == rank_) continue;
    if (!peer.local) {
      all_local = false;
      continue;
    }
    set_control(rank, std::move(peer.local->connection));
    // A peer's child that kept the connection open would hide its death; a pidfd does not.
    if (peer.local->pid > 0 && peer.local->pid != ::getpid())
      peer.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.local->pid, 0)));
    if (peer.pidfd) watch_fd(peer.pidfd.get(), EPOLLIN, tag(Source::process, rank));
  }
  if (all_local) {
    listener_.reset();
  } else {
    watch_fd(listener_.get(), EPOLLIN, tag(Source::listener, 0));
  }
  if (size() > 1) watcher_ = start_quiet_thread("dtrun-watcher", [this] { watch(); });
}

void World::stop_watcher() {
  if (!watcher_.joinable()) return;
  if (in_child()) return watcher_.detach();  // the thread is the parent's
  const std::uint64_t one = 1;
  if (::write(stop_event_.get(), &one, sizeof(one)) != static_cast<ssize_t>(sizeof(one)))
    std::terminate();  // an eventfd that nobody else writes to takes a one
  watcher_.join();
}

void World::set_control(int world_rank, UniqueFd fd) {
  auto connection = std::make_shared<ControlConnection>(std::move(fd));
  {
    const std::scoped_lock lock(mutex_);
    peers_[static_cast<std::size_t>(world_rank)].control = connection;
    peer_connected_.notify_all();
  }
  watch_fd(connection->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
           tag(Source::control, world_rank));
}

void World::watch() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    if (count < 0 && errno == EINTR) continue;
    bool data = false;
    for (int i = 0; i < count; ++i) {
      const auto source = static_cast<Source>(events[static_cast<std::size_t>(i)].data.u64 >> 32);
      const int number = static_cast<int>(events[static_cast<std::size_t>(i)].data.u64);
      switch (source) {
        case Source::stop:
          return;
        case Source::listener:
          on_listener();
          break;
        case Source::pending:
          on_pending(number);
          break;
        case Source::control:
          on_control(number);
          break;
        case Source::process:
          on_process(number);
          break;
        case Source::data:
          data = true;
          break;
      }
    }
    if (data) doorbell().ring();
  }
}

void World::on_listener() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Who connects and stays silent makes room, oldest first, for those who have something to say.
  const bool out_of_descriptors = !fd && (errno == EMFILE || errno == ENFILE);
  if ((out_of_descriptors || pending_.size() >= kMostPending) && !pending_order_.empty()) {
    pending_.erase(pending_order_.front());
    pending_order_.pop_front();
  } else if (out_of_descriptors) {
    // Turned away with the descriptor that was kept for this, or it would stay readable for ever.
    spare_.reset();
    UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
    spare_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  }
  if (!fd) return;
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Readable means: the whole hello is there.
  const int whole = sizeof(DataHello);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
  const int number = fd.get();
  pending_[number] = std::move(fd);
  pending_order_.push_back(number);
  watch_fd(number, EPOLLIN | EPOLLRDHUP, tag(Source::pending, number));
}

void World::on_pending(int number) {
  UniqueFd fd = std::move(pending_[number]);
  pending_.erase(number);
  std::erase(pending_order_, number);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, number, nullptr);
  DataHello hello;
  const ssize_t count = ::recv(number, &hello, sizeof(hello), MSG_DONTWAIT);
  if (count != static_cast<ssize_t>(sizeof(hello)) || hello.magic != DataHello::kMagic ||
      hello.token != cards_[0].token || hello.rank < 0 || hello.rank >= size() ||
      hello.lane > Lane::point_to_point)
    return;  // a stranger
  const int one = 1;
  ::setsockopt(number, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
  if (hello.kind == ConnectionKind::control) return set_control(hello.rank, std::move(fd));
  // std::function wants copies, a descriptor has none.
  auto shared = std::make_shared<UniqueFd>(std::move(fd));
  deliver(hello.group, [hello, shared](GroupListener& group) {
    group.on_data_connection(hello.rank, hello.lane, std::move(*shared));
  });
}

void World::on_control(int world_rank) {
  const std::shared_ptr<ControlConnection> connection = control(world_rank);
  connection->flush();
  for (Frame& frame : connection->receive()) {
    if (frame.kind == FrameKind::goodbye) {
      peers_[static_cast<std::size_t>(world_rank)].said_goodbye = true;
      continue;
    }
    const std::uint64_t group = frame.group;
    deliver(group, [world_rank, frame = std::move(frame)](GroupListener& listener) {
      listener.on_frame(world_rank, frame);
    });
  }
  if (!connection->open()) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd(), nullptr);
    on_lost(world_rank);
  }
}

void World::on_process(int world_rank) {
  // What the dead rank said last is still in its connection.
  on_control(world_rank);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peers_[static_cast<std::size_t>(world_rank)].pidfd.get(),
              nullptr);
  on_lost(world_rank);
}

void World::on_lost(int world_rank) {
  Peer& peer = peers_[static_cast<std::size_t>(world_rank)];
  if (peer.said_goodbye || peer.lost) return;
  peer.lost = true;
  const Error error = describe_loss(world_rank);
  const std::scoped_lock lock(groups_mutex_);
  losses_.emplace_back(world_rank, error);
  for (const auto& [id, group] : groups_) group->on_member_lost(world_rank, error);
}

bool World::on_job_page(int world_rank) const {
  if (!job_page_) return false;
  for (int slot = 0; slot < job_page_->slot_count(); ++slot)
    if (job_page_->slot(slot).global_rank.load() == card(world_rank).global_rank) return true;
  return false;
}

Error World::describe_loss(int world_rank) {
  if (on_job_page(world_rank)) {
    const Deadline grace = Deadline::after(kCauseGrace);
    while (!job_page_->aborted() && !grace.expired())
      base::futex_wait(job_page_->header().abort, 0, grace);
    if (const std::optional<GroupFailure> failure = job_failure()) return failure->error;
  }
  const std::optional<std::string> where = whereabouts(world_rank);
  return Error(
      ErrorCode::kPeerFailed,
      fmt::format("{} ended without leaving its groups", describe_member(card(world_rank))),
      where ? fmt::format("it was {}", *where) : "", "look at that rank's output first");
}

void World::deliver(std::uint64_t group, std::function<void(GroupListener&)> event) {
  const std::scoped_lock lock(groups_mutex_);
  if (const auto found = groups_.find(group); found != groups_.end()) {
    event(*found->second);
  } else if (finished_groups_.count(group) == 0) {
    early_[group].push_back(std::move(event));
  }
}

}  // namespace dtrun::collectives::cpu
