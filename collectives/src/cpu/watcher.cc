// The watcher thread of a World: one epoll instance over control connections, pidfds of peers, the
// listening sockets and the groups' ReadySockets. It runs only where there is one of these.
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "data_hello.h"
#include "dtrun/base/socket.h"
#include "group_failure_texts.h"
#include "quiet_thread.h"
#include "watcher_tag.h"
#include "world.h"

namespace dtrun::collectives::cpu {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::system_error;
using base::UniqueFd;

namespace {

// The kernel closes a dead rank's connections a moment before the launcher writes the cause. The
// watcher waits this long for the cause.
constexpr auto kCauseGrace = std::chrono::seconds(1);
// It polls for the cause: no descriptor becomes readable when it is written.
constexpr auto kCauseLook = std::chrono::milliseconds(20);
// It polls for a free descriptor in the same way, while a connection waits to be accepted.
constexpr auto kUnheard = std::chrono::milliseconds(100);

}  // namespace

bool World::try_to_watch(int fd, std::uint32_t events, std::uint64_t event_tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = event_tag;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void World::watch_fd(int fd, std::uint32_t events, std::uint64_t event_tag) {
  if (!try_to_watch(fd, events, event_tag)) throw system_error("watch the other ranks");
}

// An event for each message that comes would take the core from the rank that polls for it. So the
// watcher hears of data sockets only what a sleeper asks for.
void World::watch_ready(int epoll) {
  watch_fd(epoll, EPOLLONESHOT, tag(Source::data, epoll));
}

void World::ring_when_ready(int epoll) {
  if (!hear(tag(Source::data, epoll), EPOLLIN | EPOLLONESHOT))
    throw system_error("watch the other ranks", kLeaveThemOpen);
}

void World::start_watcher() {
  const std::scoped_lock lock(watcher_mutex_);
  if (watcher_.joinable()) return;
  watch_fd(wake_event_.get(), EPOLLIN, tag(Source::wake, 0));
  if (door_.fd() >= 0) watch_fd(door_.fd(), EPOLLIN, tag(Source::door, door_.fd()));
  watcher_ = start_quiet_thread("dtrun-watcher", [this] { watch(); });
}

void World::wake_watcher() {
  const std::uint64_t one = 1;
  if (::write(wake_event_.get(), &one, sizeof(one)) != static_cast<ssize_t>(sizeof(one)))
    throw system_error("wake the thread that watches the other ranks", kLeaveThemOpen);
}

void World::stop_watcher() {
  if (!watcher_.joinable()) return;
  if (in_child()) return watcher_.detach();  // the thread is the parent's
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_watcher();
  watcher_.join();
}

void World::watch_peer(int world_rank) {
  if (route(world_rank) != Route::shared_memory) return;
  start_watcher();
  const std::scoped_lock lock(mutex_);
  if (to_watch_.insert(world_rank).second) wake_watcher();
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

// An exception in the watcher fails the groups and does not end the process.
template <typename Act>
void World::guard(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    on_trouble(error);
  } catch (const std::exception& error) {
    on_trouble(Error(ErrorCode::kSystem, "cannot watch the other ranks", error.what()));
  }
}

void World::watch() {
  std::array<epoll_event, 64> events;
  for (;;) {
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return;
    }
    Deadline next = Deadline::never();
    if (!unexplained_.empty()) next = Deadline::after(kCauseLook);
    for (const auto& [event_tag, until] : unheard_) next = next.earlier(until);
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), events.size(), next.poll_timeout_ms());
    if (count < 0 && errno == EINTR) continue;
    // epoll itself has failed: the watcher cannot go on.
    if (count < 0) return on_trouble(system_error("watch the other ranks", kLeaveThemOpen));
    bool data = false;
    for (int i = 0; i < count; ++i)
      guard([&] { handle(events[static_cast<std::size_t>(i)].data.u64, data); });
    if (data) doorbell().ring();
    guard([&] {
      hear_again();
      judge_losses();
    });
  }
}

void World::handle(std::uint64_t event_tag, bool& data) {
  const int number = static_cast<int>(event_tag);
  switch (static_cast<Source>(event_tag >> 32)) {
    case Source::wake:
      return on_wake();
    case Source::door:
      if (!door_.answer(spare_)) stop_hearing(event_tag);
      return;
    case Source::listener:
      if (!on_listener()) stop_hearing(event_tag);
      return;
    case Source::pending:
      return on_pending(number);
    case Source::control:
      return on_control(number);
    case Source::lifeline:
      lifelines_.drop(number);
      return on_lost(number);
    case Source::data:
      data = true;
  }
}

void World::on_wake() {
  std::uint64_t count = 0;
  static_cast<void>(::read(wake_event_.get(), &count, sizeof(count)));
  std::set<int> ranks;
  {
    const std::scoped_lock lock(mutex_);
    ranks.swap(to_watch_);
  }
  for (const int rank : ranks) {
    if (peers_[static_cast<std::size_t>(rank)].lost) continue;
    const auto watch = [this](int fd, int number) {
      return try_to_watch(fd, EPOLLIN, tag(Source::lifeline, number));
    };
    if (lifelines_.look(door_.commons(), rank, watch) == Lifelines::Found::dead) on_lost(rank);
  }
}

bool World::hear(std::uint64_t event_tag, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = event_tag;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, static_cast<int>(event_tag), &event) == 0;
}

/// Without a free descriptor the listener stays readable, and epoll would return at once for ever.
void World::stop_hearing(std::uint64_t event_tag) {
  hear(event_tag, 0);
  unheard_.insert_or_assign(event_tag, Deadline::after(kUnheard));
}

void World::hear_again() {
  std::erase_if(unheard_, [this](const auto& unheard) {
    const bool again = unheard.second.expired();
    if (again) hear(unheard.first, EPOLLIN);
    return again;
  });
}

/// Accepts one connection. False: one waits, and there is no free descriptor for it.
bool World::on_listener() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Connections that have sent no hello are dropped, oldest first, to make room for new ones.
  const int error = fd ? 0 : errno;
  const bool out_of_descriptors = error == EMFILE || error == ENFILE;
  if ((out_of_descriptors || pending_.size() >= kMostPending) && !pending_order_.empty()) {
    pending_.erase(pending_order_.front());
    pending_order_.pop_front();
  } else if (out_of_descriptors) {
    return spare_.lend(
        [this] { UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); });
  }
  if (!fd) return error != ENOMEM && error != ENOBUFS;
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // With SO_RCVLOWAT the socket becomes readable when the whole hello is there.
  const int whole = sizeof(DataHello);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVLOWAT, &whole, sizeof(whole));
  const int number = fd.get();
  pending_[number] = std::move(fd);
  pending_order_.push_back(number);
  watch_fd(number, EPOLLIN | EPOLLRDHUP, tag(Source::pending, number));
  return true;
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
      hello.lane > Lane::point_to_point ||
      hello.connections > GroupOptions::kMostConnectionsPerPeer ||
      hello.connection >= hello.connections)
    return;  // a stranger
  const int one = 1;
  ::setsockopt(number, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
  const bool control = hello.kind == ConnectionKind::control;
  base::notice_silence(number, kHostPatience, control ? kHostPatience : timeout_);
  if (control) return set_control(hello.rank, std::move(fd));
  // std::function must be copyable and UniqueFd is not, so the descriptor is shared.
  auto shared = std::make_shared<UniqueFd>(std::move(fd));
  deliver(hello.group, [hello, shared](GroupListener& group) {
    group.on_data_connection(hello.rank, hello, std::move(*shared));
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

void World::on_lost(int world_rank) {
  Peer& peer = peers_[static_cast<std::size_t>(world_rank)];
  if (shares_memory(world_rank))
    peer.said_goodbye = cell(world_rank).state.load() == CellState::left;
  if (peer.said_goodbye || peer.lost) return;
  peer.lost = true;
  unexplained_.emplace(
      world_rank, on_job_page(world_rank) ? Deadline::after(kCauseGrace) : Deadline::after({}));
}

void World::judge_losses() {
  const bool explained = job_page_ && job_page_->aborted();
  std::erase_if(unexplained_, [&](const auto& loss) {
    const auto& [rank, patience] = loss;
    if (!explained && !patience.expired()) return false;
    const Error error = describe_loss(rank);
    const std::scoped_lock lock(groups_mutex_);
    losses_.emplace_back(rank, error);
    for (const auto& [id, group] : groups_) group->on_member_lost(rank, error);
    return true;
  });
}

void World::on_trouble(const Error& error) {
  const std::scoped_lock lock(groups_mutex_);
  if (trouble_) return;
  trouble_ = error;
  for (const auto& [id, group] : groups_) group->on_trouble(error);
}

bool World::on_job_page(int world_rank) const {
  return job_page_ && job_page_->slot_of(card(world_rank).global_rank);
}

Error World::describe_loss(int world_rank) {
  if (on_job_page(world_rank))
    if (const std::optional<GroupFailure> failure = job_failure()) return failure->error;
  const std::optional<std::string> where = whereabouts(world_rank);
  return member_lost_error(card(world_rank), where ? fmt::format("it was {}", *where) : "");
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
