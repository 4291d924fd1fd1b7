#include "group_channels.h"

#include <algorithm>
#include <bit>
#include <new>

#include "dtrun/base/log.h"
#include "operation.h"
#include "ring.h"
#include "striped_channel.h"
#include "tcp_channel.h"

namespace dtrun::collectives::cpu {

namespace {

// Rings of one rank, group and lane together stay below kAllRingsBytes, so that large worlds do not
// spend memory by the square of their size.
constexpr std::size_t kLargestRing = 256 << 10;
constexpr std::size_t kSmallestRing = 16 << 10;
constexpr std::size_t kAllRingsBytes = 4 << 20;

std::size_t ring_capacity_for(std::size_t members) {
  if (members <= static_cast<std::size_t>(kMostLentTo)) return pipe_bytes(members);
  return std::clamp(std::bit_floor(kAllRingsBytes / members), kSmallestRing, kLargestRing);
}

std::size_t ring_capacity_for(std::size_t members, Lane lane) {
  const bool is_small = members <= static_cast<std::size_t>(kMostLentTo);
  return lane == Lane::point_to_point && is_small ? kMessagePipe : ring_capacity_for(members);
}

const char* lane_name(Lane lane) {
  constexpr std::array<const char*, kLanes> kNames = {"prompt", "bulk", "point-to-point"};
  return kNames[static_cast<std::size_t>(lane)];
}

}  // namespace

GroupChannels::GroupChannels(World& world, const GroupSpec& spec)
    : world_(world),
      spec_(spec),
      table_(find_table()),
      own_block_(block(spec.rank)),
      sockets_(world),
      peers_(spec.world_ranks.size()),
      ring_capacity_(ring_capacity_for(peers_.size())),
      meetings_{Meeting(world, spec, table_, Lane::prompt),
                Meeting(world, spec, table_, Lane::bulk)} {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    peers_[peer].is_near = world.shares_memory(spec.world_ranks[peer]);
}

/// Of those who share memory with this rank the first keeps it, but for the world's own group.
GroupTable& GroupChannels::find_table() const {
  const auto keeper = std::find_if(spec_.world_ranks.begin(), spec_.world_ranks.end(),
                                   [this](int rank) { return world_.shares_memory(rank); });
  const Offset offset =
      spec_.memory[index(static_cast<int>(keeper - spec_.world_ranks.begin()))].table;
  if (offset == 0) return world_.root_table();
  return *reinterpret_cast<GroupTable*>(world_.at(*keeper, offset));
}

TransportCounters GroupChannels::counters() {
  TransportCounters all = counters_;
  for (Meeting& meeting : meetings_) {
    all.shared_memory_bytes_sent += meeting.counters().shared_memory_bytes_sent;
    all.shared_memory_bytes_received += meeting.counters().shared_memory_bytes_received;
  }
  return all;
}

GroupBlock& GroupChannels::block(int peer) const {
  return *reinterpret_cast<GroupBlock*>(
      world_.at(world_rank(peer), spec_.memory[index(peer)].block));
}

const CallHistory& GroupChannels::history_of(int peer) {
  return block(peer).history;
}

void GroupChannels::ring_local_members() {
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer)
    if (peer != spec_.rank && shares_memory(peer))
      world_.doorbell(world_rank(peer)).ring_sleepers();
}

std::unique_ptr<SendChannel> GroupChannels::make_ring(int peer, Lane lane) {
  const std::size_t capacity = ring_capacity_for(peers_.size(), lane);
  const Offset offset = world_.heap().allocate(ring_bytes(capacity));
  rings_.push_back(offset);
  auto* ring = new (world_.heap().at(offset)) RingHeader();
  ring->capacity = capacity;
  auto channel = std::make_unique<RingSendChannel>(
      *ring, world_.doorbell(world_rank(peer)),
      least_lent_bytes(OpKind::send, world_.crowding(), capacity));
  // The ring is announced empty; the first write rings the doorbell.
  own_block_.slots()[peer].rings[static_cast<int>(lane)].store(offset, std::memory_order_seq_cst);
  return channel;
}

SendChannel& GroupChannels::to(int peer, Lane lane) {
  std::unique_ptr<SendChannel>& channel = peers_[index(peer)].send[static_cast<std::size_t>(lane)];
  if (!channel) {
    const bool is_near = world_.route(world_rank(peer)) == Route::shared_memory;
    channel = is_near ? make_ring(peer, lane) : make_tcp(peer, lane);
  }
  return *channel;
}

std::unique_ptr<SendChannel> GroupChannels::make_tcp(int peer, Lane lane) {
  const ConnectionCount count = world_.connections_to(world_rank(peer));
  base::log::debug(base::log::Component::kCollectives,
                   "group '{}', {} lane: messages of {} bytes and more to {} take {}", spec_.name,
                   lane_name(lane), kLeastStripedBytes,
                   describe_member(world_.card(world_rank(peer))), count.to_string());
  const auto connect = [this, peer, lane, count](std::size_t connection) {
    DataHello hello = world_.make_hello(ConnectionKind::data, spec_.id, lane);
    hello.connection = static_cast<std::uint8_t>(connection);
    hello.connections = static_cast<std::uint8_t>(count.connections);
    return std::make_unique<TcpSendChannel>(world_.connect_data(world_rank(peer)), hello, sockets_);
  };
  if (count.connections == 1) return connect(0);
  return std::make_unique<StripedSendChannel>(static_cast<std::size_t>(count.connections), connect);
}

ReceiveChannel* GroupChannels::from(int peer, Lane lane) {
  std::unique_ptr<ReceiveChannel>& channel =
      peers_[index(peer)].receive[static_cast<std::size_t>(lane)];
  if (!channel && world_.route(world_rank(peer)) == Route::shared_memory) {
    const Offset offset = block(peer).slots()[spec_.rank].rings[static_cast<int>(lane)].load(
        std::memory_order_seq_cst);
    if (offset == 0) return nullptr;
    auto* ring = reinterpret_cast<RingHeader*>(world_.at(world_rank(peer), offset));
    channel = std::make_unique<RingReceiveChannel>(*ring, world_.doorbell(world_rank(peer)),
                                                   world_.memory_of(world_rank(peer)));
  }
  return channel.get();
}

void GroupChannels::attach(int peer, const DataHello& hello, base::UniqueFd fd) {
  Peer& entry = peers_[index(peer)];
  const auto lane = static_cast<std::size_t>(hello.lane);
  std::uint8_t& connections = entry.connections[lane];
  if (connections == 0) connections = hello.connections;
  // A peer says the same number on each. What says another is not the peer's, and is closed.
  if (shares_memory(peer) || hello.connections != connections) return;
  std::unique_ptr<ReceiveChannel>& channel = entry.receive[lane];
  auto connection = std::make_unique<TcpReceiveChannel>(std::move(fd), sockets_);
  if (connections == 1) {
    channel = std::move(connection);
    return;
  }
  if (!channel) channel = std::make_unique<StripedReceiveChannel>(connections);
  static_cast<StripedReceiveChannel&>(*channel).attach(hello.connection, std::move(connection));
}

int GroupChannels::cut_off() const {
  if (!sockets_.any_ended()) return -1;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer)
    if (!has_left(peer) && std::ranges::any_of(peers_[index(peer)].send, [](const auto& channel) {
          return channel && channel->broken();
        }))
      return peer;
  return -1;
}

void GroupChannels::set_left(int peer, const LeftRecord& record) {
  if (!has_left(peer)) peers_[index(peer)].left = record;
  anybody_left_ = true;
}

bool GroupChannels::has_left(int peer) const {
  return peers_[index(peer)].left.has_value() ||
         table_.line(peer).left.load(std::memory_order_seq_cst) != 0;
}

bool GroupChannels::exhausted(int peer, Lane lane) {
  if (!has_left(peer)) return false;
  if (shares_memory(peer)) {
    // What it has put into the ring can be seen by whoever sees that it has left.
    ReceiveChannel* channel = from(peer, lane);
    return channel == nullptr || channel->empty();
  }
  const Peer& entry = peers_[index(peer)];
  const auto lane_index = static_cast<std::size_t>(lane);
  return entry.received[lane_index] >= entry.left->sent[lane_index];
}

void GroupChannels::withdraw_lent() {
  for (Peer& peer : peers_)
    for (const std::unique_ptr<SendChannel>& channel : peer.send)
      if (channel) channel->withdraw();
}

void GroupChannels::withdraw_shown(const Operation& operation) {
  std::atomic<std::uint64_t>& from = table_.lines(operation.lane())[spec_.rank].withdrawn_from;
  const std::uint64_t known = from.load(std::memory_order_relaxed);
  if (known == 0 || operation.fingerprint().sequence < known)
    from.store(operation.fingerprint().sequence, std::memory_order_seq_cst);
}

int GroupChannels::withdrawn_by(const Operation& operation) const {
  const MemberLine* const lines = table_.lines(operation.lane());
  for (int member = 0; member < static_cast<int>(spec_.world_ranks.size()); ++member) {
    const std::uint64_t from = lines[member].withdrawn_from.load(std::memory_order_seq_cst);
    if (from != 0 && from <= operation.fingerprint().sequence) return member;
  }
  return -1;
}

void GroupChannels::depart() {
  own_line().left.store(1, std::memory_order_seq_cst);
  table_.left.fetch_add(1, std::memory_order_seq_cst);
  ring_local_members();
  std::uint32_t local_members = 0;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    const bool is_near = shares_memory(static_cast<int>(peer));
    if (is_near) ++local_members;
    peers_[peer] = Peer();
    peers_[peer].is_near = is_near;
  }
  for (const Meeting& meeting : meetings_)
    for (const Offset area : meeting.own_areas())
      if (area != 0) rings_.push_back(area);
  const std::uint64_t generation = table_.generation.load(std::memory_order_seq_cst);
  table_.departed.fetch_add(1, std::memory_order_seq_cst);
  world_.retire(
      {spec_.memory[index(spec_.rank)], std::move(rings_), &table_, generation, local_members});
}

}  // namespace dtrun::collectives::cpu
