#include "world.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "data_hello.h"
#include "dtrun/base/futex.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "group_failure_texts.h"
#include "tcp_channel.h"
#include "watcher_tag.h"

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

CommonsDoor::Company company_of(Transport transport) {
  return transport == Transport::automatic ? CommonsDoor::Company::machine
                                           : CommonsDoor::Company::alone;
}

}  // namespace

std::shared_ptr<World> World::create(const GroupOptions& options) {
  const Deadline deadline = options.joining_deadline();
  std::shared_ptr<World> world(new World(options, deadline));
  world->join(options, deadline);
  world->joined_ = true;
  return world;
}

World::World(const GroupOptions& options, Deadline deadline)
    : name_(options.name),
      rank_(options.rank),
      timeout_(options.timeout),
      single_copy_(options.single_copy),
      connections_per_peer_(options.connections_per_peer),
      costs_(options.costs),
      job_page_(options.job_page),
      door_(
          {*options.store, options.global_ranks[static_cast<std::size_t>(options.rank)],
           options.rank, static_cast<int>(options.global_ranks.size()), deadline, options.machine},
          company_of(options.transport)),
      heap_(door_.commons(), rank_),
      record_(record_of(options)),
      progress_thread_(
          doorbell(), [this](std::uint32_t ticket, Deadline until) { await_ring(ticket, until); }) {
  record_->attach(door_.commons().cell(rank_).board);
}

void World::listen(const GroupOptions& options, Card& mine) {
  listener_ = base::listen_tcp(options.address.empty() ? "127.0.0.1" : options.address, 0);
  mine.address = base::local_address(listener_.get());
  mine.port = base::local_port(listener_.get());
  base::set_nonblocking(listener_.get());
}

void World::join(const GroupOptions& options, Deadline deadline) {
  if (costs_.is_given())
    base::log::debug(base::log::Component::kCollectives, "group '{}': the cost table {} says {}",
                     name_, costs_.path(), json_of(costs_.limits()));
  const std::size_t index = static_cast<std::size_t>(options.rank);
  root_memory_ = make_group_memory(options.global_ranks.size(), Keeps::block);
  const CpuShare share(door_.commons(), rank_);
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_event_) throw system_error("make an epoll instance");
  // The others of this machine cannot put up their cards before this rank has let them in.
  if (door_.fd() >= 0) start_watcher();
  Card mine;
  mine.global_rank = options.global_ranks[index];
  mine.pid = ::getpid();
  mine.host = base::host_name();
  mine.commons = door_.name();
  mine.token = random_token();
  listen(options, mine);
  // Before the card is in the store: whoever has read the card may look at the cell.
  door_.commons().cell(rank_).state.store(CellState::here);
  cards_ = exchange_cards(options, mine, deadline);
  peers_ = std::vector<Peer>(cards_.size());
  for (const Card& peer : cards_) {
    const bool shared = !peer.commons.empty() && peer.commons == door_.name();
    routes_.push_back(shared ? Route::shared_memory : Route::tcp);
  }
  routes_[index] = Route::self;
  const auto shares = [this](int rank) { return shares_memory(rank); };
  crowding_ = share.has_cpus_for(1, size(), shares) ? Crowding::alone : Crowding::crowded;
  cores_ = share.cores_of_all(size(), shares);
  if (!share.has_cpus_for(2, size(), shares)) progress_thread_.look_seldom();
  int local_ranks = 0;
  for (int rank = 0; rank < size(); ++rank) local_ranks += shares(rank) ? 1 : 0;
  if (local_ranks < size()) {
    start_watcher();
    watch_fd(listener_.get(), EPOLLIN, tag(Source::listener, listener_.get()));
    connect_control(deadline);
  } else {
    listener_.reset();
    if (size() > 1) door_.commons().commit_posts(rank_);
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
    const DataHello hello = make_hello(ConnectionKind::control, 0, Lane::prompt);
    base::notice_silence(fd.get(), kHostPatience, kHostPatience);
    base::send_all(fd.get(), &hello, sizeof(hello), deadline);
    base::set_nonblocking(fd.get());
    set_control(rank, std::move(fd));
  }
  std::unique_lock lock(mutex_);
  const auto complete = [this] {
    for (int rank = 0; rank < size(); ++rank)
      if (!shares_memory(rank) && !peers_[static_cast<std::size_t>(rank)].control) return false;
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
  if (joined_) {
    for (int rank = 0; rank < size(); ++rank)
      if (!shares_memory(rank)) send(rank, {FrameKind::goodbye, 0, ""});
    door_.commons().cell(rank_).state.store(CellState::left);
  }
  stop_watcher();
  record_->detach(door_.commons().cell(rank_).board);
}

Route World::route(int world_rank) const {
  return routes_[static_cast<std::size_t>(world_rank)];
}

bool World::all_linked(const std::vector<int>& world_ranks) const {
  return std::all_of(world_ranks.begin(), world_ranks.end(), [&](int rank) {
    return !card(rank).commons.empty() && card(rank).commons == card(world_ranks.front()).commons;
  });
}

std::byte* World::at(int world_rank, Offset offset) {
  if (world_rank == rank_) return heap_.at(offset);
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<CommonsSpan>& heap = peers_[static_cast<std::size_t>(world_rank)].heap;
  if (!heap)
    heap = std::make_unique<CommonsSpan>(
        door_.commons().fd(), door_.commons().heap_offset(world_rank), Commons::kHeapSpan);
  return heap->at(offset);
}

std::shared_ptr<TensorHeap> World::tensor_heap() {
  const std::scoped_lock lock(mutex_);
  if (tensor_heap_) return tensor_heap_;
  // A lack of address space is told here, and not in the middle of a collective.
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_ && shares_memory(peer)) tensors_of(peer);
  tensor_heap_ = std::make_shared<TensorHeap>(door_.commons(), rank_);
  known_tensor_heap_.store(tensor_heap_.get(), std::memory_order_release);
  return tensor_heap_;
}

std::optional<Offset> World::shared_offset_of(const void* data) const {
  const TensorHeap* const heap = known_tensor_heap_.load(std::memory_order_acquire);
  return heap != nullptr ? heap->offset_of(data) : std::nullopt;
}

const std::byte* World::tensor_at(int world_rank, Offset offset) {
  const std::scoped_lock lock(mutex_);
  return tensors_of(world_rank).at(offset);
}

const CommonsSpan& World::tensors_of(int world_rank) {
  std::unique_ptr<CommonsSpan>& tensors = peers_[static_cast<std::size_t>(world_rank)].tensors;
  if (!tensors)
    tensors = std::make_unique<CommonsSpan>(door_.commons().fd(),
                                            door_.commons().tensors_offset(world_rank),
                                            Commons::kTensorSpan, CommonsSpan::Access::read);
  return *tensors;
}

const PeerMemory* World::memory_of(int world_rank) {
  if (single_copy_ == SingleCopy::never) return nullptr;
  const std::scoped_lock lock(mutex_);
  Peer& peer = peers_[static_cast<std::size_t>(world_rank)];
  // Once: where the kernel refuses it, it would refuse it each time.
  if (!std::exchange(peer.memory_was_tried, true)) {
    peer.memory = PeerMemory::open(door_.commons(), world_rank);
    base::log::debug(base::log::Component::kCollectives, "{}: {}",
                     describe_member(card(world_rank)),
                     peer.memory ? "large messages come by one copy, out of its memory"
                                 : "its memory cannot be read, so messages come through a ring");
  }
  return peer.memory.get();
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

ConnectionCount World::connections_to(int world_rank) {
  if (connections_per_peer_ != 0) return ConnectionCount::chosen(connections_per_peer_);
  const std::shared_ptr<ControlConnection> known = control(world_rank);
  return ConnectionCount::of_round_trip(known ? base::least_round_trip_of(known->fd())
                                              : Deadline::Duration(0));
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
  tend_data(fd.get());
  if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
    throw system_error(
        fmt::format("connect to {} at {}:{}", describe_member(peer), peer.address, peer.port));
  return fd;
}

// A receiver that is busy or stopped may leave a full connection as it is for as long as the group
// has time: its host's end is noticed on the control connection.
void World::tend_data(int fd) const {
  base::notice_silence(fd, kHostPatience, timeout_);
}

void World::await_ring(std::uint32_t ticket, Deadline until) {
  const base::FutexWord words[] = {{&doorbell().word, ticket},
                                   {job_page_ ? &job_page_->header().abort : nullptr, 0}};
  base::futex_wait_any({words, job_page_ ? 2U : 1U}, until);
}

std::optional<GroupFailure> World::job_failure() const {
  return collectives::job_failure(job_page_.get());
}

int World::victim_of(int world_rank) {
  if (route(world_rank) == Route::shared_memory) {
    const std::optional<BoardLine> line = cell(world_rank).board.read();
    return line ? line->victim_of : -1;
  }
  const std::scoped_lock lock(mutex_);
  const Peer& peer = peers_[static_cast<std::size_t>(world_rank)];
  return peer.status ? peer.status->victim_of : -1;
}

std::optional<std::string> World::whereabouts(int world_rank) {
  std::optional<BoardLine> line;
  std::int64_t now = monotonic_ns();
  if (route(world_rank) == Route::shared_memory) {
    line = cell(world_rank).board.read();
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

std::optional<BoardLine> World::status(int world_rank) {
  if (shares_memory(world_rank)) return cell(world_rank).board.read();
  const std::scoped_lock lock(mutex_);
  return peers_[static_cast<std::size_t>(world_rank)].status;
}

GroupMemory World::make_group_memory(std::size_t members, Keeps keeps) {
  const std::scoped_lock lock(mutex_);
  reuse_retired();
  GroupMemory memory;
  memory.block = heap_.allocate(GroupBlock::bytes(members));
  if (keeps == Keeps::block) return memory;
  const GroupTable::Posts posts =
      keeps == Keeps::table_with_posts ? GroupTable::Posts::all : GroupTable::Posts::none;
  const std::size_t bytes = GroupTable::bytes(members, posts);
  if (const std::optional<Offset> used = reuse_table(bytes)) {
    memory.table = *used;
  } else {
    memory.table = heap_.allocate(bytes);
    tables_.push_back({memory.table, bytes, true});
  }
  GroupTable::make_at(heap_.at(memory.table), members, posts, ++table_generation_);
  return memory;
}

void World::reuse_retired() {
  std::erase_if(retired_, [this](const Retired& retired) {
    // In another's heap the table may be another group's by now: then all have departed from this.
    if (retired.table->generation.load(std::memory_order_seq_cst) == retired.generation &&
        retired.table->departed.load(std::memory_order_seq_cst) != retired.local_members)
      return false;
    for (const Offset ring : retired.rings) heap_.free(ring);
    heap_.free(retired.memory.block);
    for (Table& table : tables_)
      if (table.offset == retired.memory.table) table.in_use = false;
    return true;
  });
}

/// Tables are used anew as tables only: others may still look at the generation.
std::optional<Offset> World::reuse_table(std::size_t bytes) {
  for (Table& table : tables_) {
    if (table.in_use || table.bytes < bytes || table.bytes > 2 * bytes) continue;
    table.in_use = true;
    return table.offset;
  }
  return std::nullopt;
}

namespace {
/// As Cell::yields_on. With restartable sequences the kernel keeps the number in the thread's
/// memory.
std::uint32_t mark_of_this_cpu() {
  return static_cast<std::uint32_t>(::sched_getcpu() + 1);
}
}  // namespace

void World::yield_core(int look) {
  constexpr int kLooksPerQuestion = 16;
  if (look % kLooksPerQuestion == 0) {
    const auto shares = [this](int rank) { return shares_memory(rank); };
    if (crowding_ == Crowding::alone)
      own_cpu_.leave_if_shared(shares);
    else
      own_cpu_.leave_if_crowded(size(), shares);
  }
  std::atomic<std::uint32_t>& yields_on = door_.commons().cell(rank_).yields_on;
  yields_on.store(mark_of_this_cpu(), std::memory_order_relaxed);
  ::sched_yield();
  yields_on.store(0, std::memory_order_relaxed);
}

bool World::wants_core(int world_rank) const {
  const Cell& of_peer = cell(world_rank);
  if (of_peer.doorbell.sleepers.load(std::memory_order_relaxed) != 0) return true;
  const std::uint32_t yields_on = of_peer.yields_on.load(std::memory_order_relaxed);
  return yields_on != 0 && yields_on == mark_of_this_cpu();
}

void World::retire(Retired retired) {
  const std::scoped_lock lock(mutex_);
  retired_.push_back(std::move(retired));
}

void World::add_group(std::uint64_t id, GroupListener& group) {
  const std::scoped_lock lock(groups_mutex_);
  groups_[id] = &group;
  // A peer may have made the group before this rank: what it has sent since is waiting.
  if (const auto early = early_.find(id); early != early_.end()) {
    for (const std::function<void(GroupListener&)>& event : early->second) event(group);
    early_.erase(early);
  }
  for (const auto& [rank, error] : losses_) group.on_member_lost(rank, error);
  if (trouble_) group.on_trouble(*trouble_);
}

void World::remove_group(std::uint64_t id) {
  const std::scoped_lock lock(groups_mutex_);
  groups_.erase(id);
  // Late events of this group are dropped, not kept as early ones (watcher.cc).
  finished_groups_.insert(id);
}

bool World::has_ended(int world_rank) {
  if (world_rank == rank_) return false;
  if (shares_memory(world_rank)) return !LifeSign::is_seen(door_.commons(), world_rank);
  const std::scoped_lock lock(groups_mutex_);
  return std::ranges::any_of(losses_, [&](const auto& loss) { return loss.first == world_rank; });
}

}  // namespace dtrun::collectives::cpu
