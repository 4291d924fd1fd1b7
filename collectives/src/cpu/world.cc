#include "world.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "data_hello.h"
#include "dtrun/base/futex.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "group_block.h"

namespace dtrun::collectives::cpu {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::system_error;
using base::UniqueFd;

namespace {

std::uint64_t random_token() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

int allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

std::shared_ptr<World> World::create(const GroupOptions& options) {
  std::shared_ptr<World> world(new World(options));
  world->join(options);
  world->joined_ = true;
  return world;
}

World::World(const GroupOptions& options)
    : name_(options.name),
      rank_(options.rank),
      job_page_(options.job_page),
      record_(heap_.header().board, options.job_page, options.local_rank),
      progress_thread_(heap_.header().doorbell, [this](std::uint32_t ticket, Deadline until) {
        await_ring(ticket, until);
      }) {}

void World::listen(const GroupOptions& options, Card& mine) {
  listener_ = base::listen_tcp(options.address.empty() ? "127.0.0.1" : options.address, 0);
  mine.address = base::local_address(listener_.get());
  mine.port = base::local_port(listener_.get());
  base::set_nonblocking(listener_.get());
}

void World::join(const GroupOptions& options) {
  const Deadline deadline = Deadline::after(options.timeout);
  const std::size_t index = static_cast<std::size_t>(options.rank);
  own_root_block_ = make_group_block(options.global_ranks.size());
  Card mine;
  mine.global_rank = options.global_ranks[index];
  mine.pid = ::getpid();
  mine.host = base::host_name();
  mine.locality = locality_here();
  mine.token = random_token();
  LocalListener local_listener;
  if (options.transport == Transport::automatic) {
    local_listener = listen_locally();
    mine.local_socket = local_listener.name;
  }
  listen(options, mine);
  cards_ = exchange_cards(options, mine, deadline);
  peers_ = std::vector<Peer>(cards_.size());

  auto [links, reached] = link_local_peers(
      {cards_, rank_, local_listener, heap_, own_root_block_, record_, *options.store, deadline});
  reached_ = std::move(reached);
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  stop_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!epoll_ || !stop_event_) throw system_error("make an epoll instance");
  int local_ranks = 1;
  for (std::size_t rank = 0; rank < links.size(); ++rank) {
    if (!links[rank]) continue;
    ++local_ranks;
    peers_[rank].local = std::move(links[rank]);
  }
  crowding_ = local_ranks > allowed_cpus() ? Crowding::crowded : Crowding::alone;
  start_watcher();
  if (local_ranks < size()) {
    connect_control(deadline);
  }
  base::log::debug(base::log::Component::kCollectives,
                   "group '{}': rank {} of {}, {} peers by shared memory, {} by tcp", name_, rank_,
                   size(), local_ranks - 1, size() - local_ranks);
}

// Of two ranks the higher one connects.
void World::connect_control(Deadline deadline) {
  for (int rank = 0; rank < rank_; ++rank) {
    if (route(rank) != Route::tcp) continue;
    const Card& peer = card(rank);
    UniqueFd fd = base::connect_tcp(peer.address, peer.port, deadline);
    const DataHello hello = make_hello(ConnectionKind::control, 0, Lane::collective);
    base::send_all(fd.get(), &hello, sizeof(hello), deadline);
    base::set_nonblocking(fd.get());
    set_control(rank, std::move(fd));
  }
  std::unique_lock lock(mutex_);
  const auto complete = [this] {
    for (int rank = 0; rank < size(); ++rank)
      if (rank != rank_ && !peers_[static_cast<std::size_t>(rank)].control) return false;
    return true;
  };
  if (deadline.is_never()) {
    peer_connected_.wait(lock, complete);
  } else if (!peer_connected_.wait_until(lock, deadline.when(), complete)) {
    throw Error(ErrorCode::kTimeout,
                fmt::format("not all members of group '{}' could connect to {} at {}:{}", name_,
                            describe_member(card(rank_)), card(rank_).address, card(rank_).port),
                "a firewall may stand between the hosts", "open the ports between the hosts");
  }
}

World::~World() {
  if (in_child()) {
    progress_thread_.forget();
    stop_watcher();
    return;
  }
  // A rank that could not join has not left: its end must look like a death to those who did.
  for (int rank = 0; joined_ && rank < size(); ++rank)
    if (rank != rank_) send(rank, {FrameKind::goodbye, 0, ""});
  stop_watcher();
}

Route World::route(int world_rank) const {
  if (world_rank == rank_) return Route::self;
  return peers_[static_cast<std::size_t>(world_rank)].local ? Route::shared_memory : Route::tcp;
}

const PeerHeap& World::peer_heap(int world_rank) const {
  return peers_[static_cast<std::size_t>(world_rank)].local->heap;
}

bool World::all_linked(const std::vector<int>& world_ranks) const {
  for (const int a : world_ranks)
    for (const int b : world_ranks) {
      const std::string& row = reached_[static_cast<std::size_t>(b)];
      if (a < b &&
          (row.size() <= static_cast<std::size_t>(a) || row[static_cast<std::size_t>(a)] != '1'))
        return false;
    }
  return true;
}

Offset World::root_block(int world_rank) const {
  if (world_rank == rank_) return own_root_block_;
  const std::optional<LocalLink>& local = peers_[static_cast<std::size_t>(world_rank)].local;
  return local ? local->root_block : 0;
}

std::shared_ptr<ControlConnection> World::control(int world_rank) {
  const std::scoped_lock lock(mutex_);
  return peers_[static_cast<std::size_t>(world_rank)].control;
}

void World::send(int world_rank, const Frame& frame) {
  if (const std::shared_ptr<ControlConnection> connection = control(world_rank))
    connection->send(frame);
}

DataHello World::make_hello(ConnectionKind kind, std::uint64_t group, Lane lane) const {
  DataHello hello;
  hello.token = cards_[0].token;
  hello.group = group;
  hello.rank = rank_;
  hello.kind = kind;
  hello.lane = lane;
  return hello;
}

UniqueFd World::connect_data(int world_rank) {
  const Card& peer = card(world_rank);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(peer.address.c_str(), fmt::format("{}", peer.port).c_str(), &hints, &found) !=
      0)
    throw Error(ErrorCode::kConnection, fmt::format("{} gave the address '{}', which is none",
                                                    describe_member(peer), peer.address));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw system_error("make a TCP socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
    throw system_error(
        fmt::format("connect to {} at {}:{}", describe_member(peer), peer.address, peer.port));
  watch_data(fd.get());
  return fd;
}

void World::await_ring(std::uint32_t ticket, Deadline until) {
  const base::FutexWord words[] = {{&doorbell().word, ticket},
                                   {job_page_ ? &job_page_->header().abort : nullptr, 0}};
  base::futex_wait_any({words, job_page_ ? 2U : 1U}, until);
}

std::optional<GroupFailure> World::job_failure() const {
  if (!job_page_ || !job_page_->aborted()) return std::nullopt;
  const std::string cause = job_page_->describe_cause();
  const int failed = job_page_->header().cause.global_rank;
  if (cause.empty() || failed < 0)
    return GroupFailure{Error(ErrorCode::kAborted, "the job is being stopped", cause), -1};
  return GroupFailure{Error(ErrorCode::kPeerFailed, cause, "", "look at that rank's output first"),
                      failed};
}

std::optional<std::string> World::whereabouts(int world_rank) {
  std::optional<BoardLine> line;
  std::int64_t now = monotonic_ns();
  if (route(world_rank) == Route::shared_memory) {
    line = peer_heap(world_rank).header().board.read();
  } else {
    const std::scoped_lock lock(mutex_);
    const Peer& peer = peers_[static_cast<std::size_t>(world_rank)];
    line = peer.status;
    // Times came as ages, negated; the clocks of two machines have nothing in common.
    if (line) now -= peer.status_at_ns;
  }
  if (!line) return std::nullopt;
  return line->describe(now);
}

void World::store_status(int world_rank, const BoardLine& line) {
  const std::scoped_lock lock(mutex_);
  Peer& peer = peers_[static_cast<std::size_t>(world_rank)];
  peer.status = line;
  peer.status_at_ns = monotonic_ns();
}

Offset World::make_group_block(std::size_t members) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(retired_, [this](const Retired& retired) {
      const auto* block = reinterpret_cast<const GroupBlock*>(heap_.at(retired.block));
      if (block->departed.load(std::memory_order_seq_cst) != retired.local_peers) return false;
      for (const Offset ring : retired.rings) heap_.free(ring);
      heap_.free(retired.block);
      return true;
    });
  }
  return allocate_group_block(heap_, members);
}

void World::retire(Retired retired) {
  const std::scoped_lock lock(mutex_);
  retired_.push_back(std::move(retired));
}

void World::add_group(std::uint64_t id, GroupListener& group) {
  const std::scoped_lock lock(groups_mutex_);
  groups_[id] = &group;
  if (const auto early = early_.find(id); early != early_.end()) {
    for (const std::function<void(GroupListener&)>& event : early->second) event(group);
    early_.erase(early);
  }
  for (const auto& [rank, error] : losses_) group.on_member_lost(rank, error);
}

void World::remove_group(std::uint64_t id) {
  const std::scoped_lock lock(groups_mutex_);
  groups_.erase(id);
  finished_groups_.insert(id);
}

}  // namespace dtrun::collectives::cpu
