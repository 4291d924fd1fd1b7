// GuardLink: the socket between agent and guard, one message per packet, and what is said on it.
// Both ends are the same binary (fork without exec), so structs travel as they lie in memory. The
// end of the connection means the death of the other side.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

enum class MessageKind : std::uint32_t {
  kStart,         ///< agent: StartOrder; once the group before it has ended
  kStop,          ///< agent: StopOrder
  kSignal,        ///< agent: SignalOrder
  kPause,         ///< agent: PauseOrder; answered by kPaused
  kResume,        ///< agent: PauseOrder
  kRankEnd,       ///< guard: RankEnd, then the end of its standard error and its last operations
  kRankGone,      ///< guard: RankGone, at once; only where metrics are served
  kSpawned,       ///< guard: Spawned; where metrics are served, with the job page
  kSpawnFailure,  ///< guard: SpawnFailure, then the Error's text
  kFirstFailure,  ///< guard: FirstFailure, the end of its standard error; after an exit with 0 also
                  ///< why that is a failure
  kGroupEnd,      ///< guard: GroupEnd; its last message about the round
  kFlush,         ///< agent: FlushOrder; no round will follow
  kJobEnd,        ///< agent: JobEnd; its last message
  kNote,          ///< guard: GuardNote, then a text for the operator
  kPaused,        ///< guard: PauseOrder; all ranks are stopped, except those that are ending
  kReaderGone,    ///< guard: GuardNote; nobody reads the standard output any more
  kFlushed,       ///< guard: GroupEnd, of which only the fields about output count
  kLease,         ///< agent: Lease; again and again
  kFenced,        ///< guard: GuardNote; the lease has run out, so ranks are being killed
};

/// Why ranks are stopped: each cause has a grace of its own.
enum class StopCause : std::uint32_t {
  kOperator,  ///< a signal to dtrun, on this node or another
  kRestart,   ///< another round is to begin
  kFailure,   ///< the job ends
};

/// The ranks may live for ever: no other node takes their place.
inline constexpr auto kNoLease = std::chrono::nanoseconds::max();

/// A round: one group of ranks on this node, and where it stands in the world.
struct StartOrder {
  int round = 0;
  int group_rank = 0;        ///< the node's number
  int group_world_size = 1;  ///< how many nodes
  int base_rank = 0;
  int world_size = 1;
  int role_base_rank = 0;
  int role_world_size = 1;
  int restart_count = 0;
  int max_restarts = 0;
  StopCause after_failure = StopCause::kFailure;  ///< the cause by which a failure stops the rest
  std::uint16_t master_port = 0;
  char master_addr[256] = {};
  std::chrono::nanoseconds lease = kNoLease;  ///< as Lease
};

/// Until when the ranks may live without another message of the agent, by the monotonic clock.
/// Afterwards other nodes may take their place, while the agent may be stopped and not know it.
struct Lease {
  std::chrono::nanoseconds until = kNoLease;
};

enum class Urgency : std::uint32_t { kClean, kNow };
/// What follows the stop. kAnotherRound does not wait for a reader of the output that has stopped.
enum class Afterwards : std::uint32_t { kNothing, kAnotherRound };

/// Without effect for a round that has ended already, or that never began.
struct StopOrder {
  int round = 0;
  int signal = 15;  ///< the first signal
  Urgency urgency = Urgency::kClean;
  StopCause why = StopCause::kFailure;
  std::chrono::nanoseconds grace{-1};  ///< for this signal, with kOperator; negative: the usual one
  Afterwards afterwards = Afterwards::kNothing;
  int failed_rank = -1;  ///< a rank of another node that has failed; -1: nobody
  char cause[256] = {};  ///< for the job page; empty: none
};

/// A signal for the ranks of a round; without effect once the round has ended.
struct SignalOrder {
  int round = 0;
  int signal = 0;
  std::chrono::nanoseconds yield_time{};  ///< to end by themselves; 0: they need not end
};

/// For whatever round runs.
struct PauseOrder {};

/// Output that still waits to be written gets the grace period.
struct FlushOrder {
  Urgency urgency = Urgency::kClean;
};

/// The job has ended, and is reported.
struct JobEnd {
  int exit_code = 0;
};

struct RankEnd {
  int local_rank = 0;
  int pid = 0;
  int code = 0;
  int signal = 0;
  int order = 0;          ///< 0 for the first that was reaped, and so on
  int victim_of = -1;     ///< the rank whose failure this one reported before it ended
  int stopped = 0;        ///< 1: ended after the guard's signal, not by another's SIGKILL
  int dumped = 0;         ///< 1: a core was written
  int oom = 0;            ///< 1: the OOM killer has ended it, as its memory cgroup says
  std::int64_t time = 0;  ///< seconds since the epoch
  int tail_bytes = 0;     ///< of its standard error, which follow
  bool success() const { return code == 0 && signal == 0; }
};

/// What becomes of it is told by its RankEnd, when the group has ended.
struct RankGone {
  int local_rank = 0;
};

struct GuardNote {
  int round = 0;
  /// Of a kNote: the rank of this node whose stack is to be shown, too; -1: none.
  int stack_of = -1;
};

/// The end of the rank because of which the group ends.
struct FirstFailure {
  RankEnd end;
  int tail_bytes = 0;
};

/// All ranks of the round run. Times of the steady clock, in nanoseconds.
struct Spawned {
  std::int64_t began = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

struct SpawnFailure {
  int local_rank = 0;
  int error_number = 0;
};

/// No process of the round is left on this node, except unkillable ones.
struct GroupEnd {
  int round = 0;
  int success = 0;  ///< 1: all ranks ended with 0, and nobody had stopped them
  std::uint64_t lost_output_bytes = 0;
  int output_error = 0;               ///< errno of the first failed write to our own output
  std::uint64_t lost_file_bytes = 0;  ///< lost for the ranks' log files, in all rounds
  int file_error = 0;                 ///< errno of the first failed write to them
  int unkillable = 0;                 ///< processes that SIGKILL did not end
  int yielded = 0;         ///< 1: the ranks were asked by a signal to end, and ended by themselves
  int output_pending = 0;  ///< 1: a slow reader has not taken all yet
};

struct GuardMessage {
  MessageKind kind{};
  std::string payload;
  base::UniqueFd file;  ///< that came with it

  template <typename T>
  T as() const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(static_cast<void*>(&value), payload.data(), sizeof value);
    return value;
  }
  template <typename T>
  std::string text_after() const {
    return payload.substr(sizeof(T));
  }
};

class GuardLink {
 public:
  GuardLink() = default;
  explicit GuardLink(base::UniqueFd fd) : fd_(std::move(fd)) {}
  struct Ends;
  /// @throws Error kSystem
  static Ends make();

  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }
  /// The other side's receive() then reports that this side is gone; its messages still come.
  void end();

  template <typename T>
  void send(MessageKind kind, const T& value, const std::string& text = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    send_bytes(kind, &value, sizeof value, text);
  }
  /// The other side gets a descriptor of the file, too.
  template <typename T>
  void send_with_file(MessageKind kind, const T& value, int file) {
    static_assert(std::is_trivially_copyable_v<T>);
    send_bytes(kind, &value, sizeof value, {}, WhenFull::kWait, file);
  }
  /// Drops the message when the other side has not read for long: for messages that are repeated.
  template <typename T>
  void send_if_room(MessageKind kind, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    send_bytes(kind, &value, sizeof value, {}, WhenFull::kDrop);
  }
  /// The next message; nullopt when the other side is gone. Blocks.
  std::optional<GuardMessage> receive();

 private:
  // receive() reports a peer that is gone; sending does not.
  enum class WhenFull { kWait, kDrop };
  void send_bytes(MessageKind kind, const void* value, std::size_t size, const std::string& text,
                  WhenFull when_full = WhenFull::kWait, int file = -1);
  base::UniqueFd fd_;
};

struct GuardLink::Ends {
  GuardLink agent;
  GuardLink guard;
};

}  // namespace dtrun::launcher
