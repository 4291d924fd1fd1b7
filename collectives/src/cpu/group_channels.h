// GroupChannels: one group's channels to and from each of its members, made when they are first
// used, and what is known about members that have left. Owned by the group's engine and used under
// its lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "channel.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/collectives/backend.h"
#include "group_block.h"
#include "meeting.h"
#include "message.h"
#include "world.h"

namespace dtrun::collectives::cpu {

/// What a group is, in its world.
struct GroupSpec {
  std::uint64_t id = 0;  ///< equal on all members, unique in the world
  std::string name;
  int rank = 0;                       ///< own, in the group
  std::vector<int> world_ranks;       ///< of the members, in group order
  std::vector<Offset> block_offsets;  ///< of their group blocks, each in its own heap; 0: not local
};

/// How many bytes a member had sent to this rank when it left.
struct LeftRecord {
  std::array<std::uint64_t, kLanes> sent{};
};

class GroupChannels {
 public:
  GroupChannels(World& world, const GroupSpec& spec);
  GroupChannels(const GroupChannels&) = delete;
  GroupChannels& operator=(const GroupChannels&) = delete;

  // Peers are group ranks.
  SendChannel& to(int peer, Lane lane);
  /// Null while the peer has not sent anything.
  ReceiveChannel* from(int peer, Lane lane);
  void attach(int peer, Lane lane, base::UniqueFd fd);

  void set_left(int peer, const LeftRecord& record);
  bool anybody_left() const { return anybody_left_; }
  bool has_left(int peer) const { return peers_[index(peer)].left.has_value(); }
  /// The peer has left and nothing that it sent is still to come.
  bool exhausted(int peer, Lane lane) const;
  /// What a farewell to that peer says.
  LeftRecord sent_to(int peer) const { return {peers_[index(peer)].sent}; }

  void count_sent(int peer, Lane lane, const Progress& progress);
  void count_received(int peer, Lane lane, const Progress& progress);
  Meeting& meeting() { return meeting_; }
  /// Tells the local members that this rank looks at nothing of theirs any more, and gives this
  /// rank's rings and block back. The last call on this object.
  void depart();
  TransportCounters counters();

 private:
  struct Peer {
    std::array<std::unique_ptr<SendChannel>, kLanes> send;
    std::array<std::unique_ptr<ReceiveChannel>, kLanes> receive;
    std::array<std::uint64_t, kLanes> sent{};
    std::array<std::uint64_t, kLanes> received{};
    std::optional<LeftRecord> left;
  };
  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  int world_rank(int peer) const { return spec_.world_ranks[index(peer)]; }
  GroupBlock& own_block() const;
  GroupBlock& peer_block(int peer) const;
  std::unique_ptr<SendChannel> make_ring(int peer, Lane lane);

  World& world_;
  const GroupSpec& spec_;
  std::vector<Peer> peers_;
  bool anybody_left_ = false;
  Meeting meeting_;
  std::vector<Offset> rings_;
  TransportCounters counters_;
};

}  // namespace dtrun::collectives::cpu
