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
#include "ready_sockets.h"
#include "world.h"

namespace dtrun::collectives::cpu {

class Operation;

/// What a group is, in its world.
struct GroupSpec {
  std::uint64_t id = 0;  ///< equal on all members, unique in the world
  std::string name;
  int rank = 0;                     ///< own, in the group
  std::vector<int> world_ranks;     ///< of the members, in group order
  std::vector<GroupMemory> memory;  ///< of the members, each in its own heap
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
  /// Null where they are not made yet.
  SendChannel* made_to(int peer, Lane lane) const {
    return peers_[index(peer)].send[static_cast<std::size_t>(lane)].get();
  }
  ReceiveChannel* made_from(int peer, Lane lane) const {
    return peers_[index(peer)].receive[static_cast<std::size_t>(lane)].get();
  }
  /// @param hello what the peer has said on it; with another number than the first, it is dropped
  void attach(int peer, const DataHello& hello, base::UniqueFd fd);
  ReadySockets& sockets() { return sockets_; }

  // Members that have left: those that share memory say so in the table, the others in a frame.
  void set_left(int peer, const LeftRecord& record);
  bool anybody_left() const {
    return anybody_left_ || table_.left.load(std::memory_order_acquire) != 0;
  }
  bool has_left(int peer) const;
  /// A peer that has not left and to which a connection has ended; -1: none.
  int cut_off() const;
  /// The peer has left and nothing that it sent is still to come.
  bool exhausted(int peer, Lane lane);
  /// What a farewell to that peer says.
  LeftRecord sent_to(int peer) const { return {peers_[index(peer)].sent}; }

  void count_sent(int peer, Lane lane, const Progress& progress) {
    Peer& entry = peers_[index(peer)];
    entry.sent[static_cast<std::size_t>(lane)] += progress.bytes;
    (entry.is_near ? counters_.shared_memory_bytes_sent : counters_.tcp_bytes_sent) +=
        progress.payload_bytes;
  }
  void count_received(int peer, Lane lane, const Progress& progress) {
    Peer& entry = peers_[index(peer)];
    entry.received[static_cast<std::size_t>(lane)] += progress.bytes;
    (entry.is_near ? counters_.shared_memory_bytes_received : counters_.tcp_bytes_received) +=
        progress.payload_bytes;
  }
  /// Of a lane of collectives.
  Meeting& meeting(Lane lane) { return meetings_[static_cast<std::size_t>(lane)]; }

  /// Bytes that a ring to a member on this machine holds, in the lanes of collectives.
  std::size_t ring_capacity() const { return ring_capacity_; }

  // Memory of the members on this machine.
  bool shares_memory(int peer) const { return peers_[index(peer)].is_near; }
  GroupTable& table() const { return table_; }
  MemberLine& own_line() const { return table_.line(spec_.rank); }
  CallHistory& own_history() const { return own_block_.history; }
  const CallHistory& history_of(int peer);
  /// Wakes those that sleep.
  void ring_local_members();

  /// What this rank has lent is no more to be used: it may be overwritten from now on.
  void withdraw_lent();

  /// The same of the buffers that this rank has shown for that call and later ones of its lane.
  void withdraw_shown(const Operation& operation);
  /// A member that has withdrawn what it showed for that call; -1: none.
  int withdrawn_by(const Operation& operation) const;

  /// Tells the local members that this rank leaves, and that it looks at nothing of theirs any
  /// more; gives its rings and block back. The last call on this object.
  void depart();
  TransportCounters counters();

 private:
  struct Peer {
    std::array<std::unique_ptr<SendChannel>, kLanes> send;
    std::array<std::unique_ptr<ReceiveChannel>, kLanes> receive;
    std::array<std::uint8_t, kLanes> connections{};  ///< of what it sends; 0: none has come
    std::array<std::uint64_t, kLanes> sent{};
    std::array<std::uint64_t, kLanes> received{};
    std::optional<LeftRecord> left;
    bool is_near = false;  ///< shares memory
  };
  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  int world_rank(int peer) const { return spec_.world_ranks[index(peer)]; }
  GroupBlock& block(int peer) const;
  GroupTable& find_table() const;
  std::unique_ptr<SendChannel> make_ring(int peer, Lane lane);
  std::unique_ptr<SendChannel> make_tcp(int peer, Lane lane);

  World& world_;
  const GroupSpec& spec_;
  GroupTable& table_;
  GroupBlock& own_block_;
  ReadySockets sockets_;
  std::vector<Peer> peers_;
  const std::size_t ring_capacity_;
  bool anybody_left_ = false;
  std::array<Meeting, kCollectiveLanes> meetings_;
  std::vector<Offset> rings_;
  TransportCounters counters_;
};

}  // namespace dtrun::collectives::cpu
