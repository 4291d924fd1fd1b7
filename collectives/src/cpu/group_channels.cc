#include "group_channels.h"

#include <algorithm>
#include <bit>
#include <new>

#include "ring.h"
#include "tcp_channel.h"

namespace dtrun::collectives::cpu {

namespace {

// Rings of one rank, group and lane together stay below kAllRingsBytes, so that large worlds do not
// spend memory by the square of their size.
constexpr std::size_t kLargestRing = 256 << 10;
constexpr std::size_t kSmallestRing = 16 << 10;
constexpr std::size_t kAllRingsBytes = 4 << 20;

std::size_t ring_capacity(std::size_t members) {
  return std::clamp(std::bit_floor(kAllRingsBytes / members), kSmallestRing, kLargestRing);
}

}  // namespace

GroupChannels::GroupChannels(World& world, const GroupSpec& spec)
    : world_(world),
      spec_(spec),
      peers_(spec.world_ranks.size()),
      meeting_(world, spec.rank, spec.world_ranks, spec.block_offsets) {}

TransportCounters GroupChannels::counters() {
  TransportCounters all = counters_;
  all.shared_memory_bytes_sent += meeting_.counters().shared_memory_bytes_sent;
  all.shared_memory_bytes_received += meeting_.counters().shared_memory_bytes_received;
  return all;
}

GroupBlock& GroupChannels::own_block() const {
  return *reinterpret_cast<GroupBlock*>(world_.heap().at(spec_.block_offsets[index(spec_.rank)]));
}

GroupBlock& GroupChannels::peer_block(int peer) const {
  return *reinterpret_cast<GroupBlock*>(
      world_.peer_heap(world_rank(peer)).at(spec_.block_offsets[index(peer)]));
}

std::unique_ptr<SendChannel> GroupChannels::make_ring(int peer, Lane lane) {
  const std::size_t capacity = ring_capacity(peers_.size());
  const Offset offset = world_.heap().allocate(ring_bytes(capacity));
  rings_.push_back(offset);
  auto* ring = new (world_.heap().at(offset)) RingHeader();
  ring->capacity = capacity;
  Doorbell& doorbell = world_.peer_heap(world_rank(peer)).header().doorbell;
  auto channel = std::make_unique<RingSendChannel>(*ring, doorbell);
  // The ring is announced empty; the first write rings the doorbell.
  own_block().slots()[peer].rings[static_cast<int>(lane)].store(offset, std::memory_order_seq_cst);
  return channel;
}

SendChannel& GroupChannels::to(int peer, Lane lane) {
  std::unique_ptr<SendChannel>& channel = peers_[index(peer)].send[static_cast<std::size_t>(lane)];
  if (!channel) {
    if (world_.route(world_rank(peer)) == Route::shared_memory) {
      channel = make_ring(peer, lane);
    } else {
      channel =
          std::make_unique<TcpSendChannel>(world_.connect_data(world_rank(peer)),
                                           world_.make_hello(ConnectionKind::data, spec_.id, lane));
    }
  }
  return *channel;
}

ReceiveChannel* GroupChannels::from(int peer, Lane lane) {
  std::unique_ptr<ReceiveChannel>& channel =
      peers_[index(peer)].receive[static_cast<std::size_t>(lane)];
  if (!channel && world_.route(world_rank(peer)) == Route::shared_memory) {
    const Offset offset = peer_block(peer).slots()[spec_.rank].rings[static_cast<int>(lane)].load(
        std::memory_order_seq_cst);
    if (offset == 0) return nullptr;
    const PeerHeap& heap = world_.peer_heap(world_rank(peer));
    auto* ring = reinterpret_cast<RingHeader*>(heap.at(offset));
    channel = std::make_unique<RingReceiveChannel>(*ring, heap.header().doorbell);
  }
  return channel.get();
}

void GroupChannels::attach(int peer, Lane lane, base::UniqueFd fd) {
  world_.watch_data(fd.get());
  peers_[index(peer)].receive[static_cast<std::size_t>(lane)] =
      std::make_unique<TcpReceiveChannel>(std::move(fd));
}

void GroupChannels::set_left(int peer, const LeftRecord& record) {
  if (!has_left(peer)) peers_[index(peer)].left = record;
  anybody_left_ = true;
}

bool GroupChannels::exhausted(int peer, Lane lane) const {
  const Peer& entry = peers_[index(peer)];
  const auto lane_index = static_cast<std::size_t>(lane);
  return entry.left && entry.received[lane_index] >= entry.left->sent[lane_index];
}

void GroupChannels::count_sent(int peer, Lane lane, const Progress& progress) {
  peers_[index(peer)].sent[static_cast<std::size_t>(lane)] += progress.bytes;
  if (world_.route(world_rank(peer)) == Route::tcp) {
    counters_.tcp_bytes_sent += progress.payload_bytes;
  } else {
    counters_.shared_memory_bytes_sent += progress.payload_bytes;
  }
}

void GroupChannels::count_received(int peer, Lane lane, const Progress& progress) {
  peers_[index(peer)].received[static_cast<std::size_t>(lane)] += progress.bytes;
  if (world_.route(world_rank(peer)) == Route::tcp) {
    counters_.tcp_bytes_received += progress.payload_bytes;
  } else {
    counters_.shared_memory_bytes_received += progress.payload_bytes;
  }
}

void GroupChannels::depart() {
  std::uint32_t local_peers = 0;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    peers_[peer] = Peer();
    if (world_.route(world_rank(static_cast<int>(peer))) != Route::shared_memory) continue;
    ++local_peers;
    peer_block(static_cast<int>(peer)).departed.fetch_add(1, std::memory_order_seq_cst);
  }
  if (meeting_.own_stage() != 0) rings_.push_back(meeting_.own_stage());
  world_.retire({spec_.block_offsets[index(spec_.rank)], std::move(rings_), local_peers});
}

}  // namespace dtrun::collectives::cpu
