// The messages between the agents of a job and the head, the agent that gathers them into rounds,
// and the settings of both. Values without behaviour: the wire (agent_protocol), the two state
// machines (round_head.h, round_member.h) and the simulator share them.
//
// A *round* is one life of the job: a set of participants, their ranks, a store of its own. Rounds
// are numbered from 0, and no number is reused: a message with another number is out of date.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace dtrun::rendezvous::rounds {

/// A point on some monotonic clock, since the clock's own origin. The state machines get it from
/// their drivers; they read no clock.
using Moment = std::chrono::nanoseconds;

inline constexpr int kNoNodeRank = -1;  ///< to be given out
inline constexpr int kNoRound = -1;
inline constexpr int kMostLocalRanks = 65536;

/// How a connection has ended.
enum class LossKind {
  kGone,    ///< its other end was closed: the process there is dead, or is done with it
  kSilent,  ///< it cannot be reached: it may live
  kReset,   ///< the other end's machine, or a box on the way, reset it: the process may live
};

/// What --max_restarts counts.
enum class RestartScope {
  kJob,    ///< all failures
  kAgent,  ///< those of each node's own workers, as torchrun does; losses of nodes as ever
};

/// The names and defaults are those of torchrun's --rdzv_conf.
struct RoundSettings {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  RestartScope restart_scope = RestartScope::kJob;
  /// Before the first restart; twice as long before each further one, up to the most.
  Moment backoff{};
  Moment most_backoff = std::chrono::minutes(5);
  /// When two rounds in a row end for the same failure, each within this time of its start, no
  /// third one begins; 0: it begins.
  Moment alike_window{};
  std::vector<std::int32_t> final_codes;  ///< exit codes after which there is no restart
  Moment join_timeout = std::chrono::seconds(600);
  /// How long others may still come in, from the moment when min_nodes are here.
  Moment last_call_timeout = std::chrono::seconds(30);
  /// How long a closed head stays to tell the others so.
  Moment close_timeout = std::chrono::seconds(30);
  Moment keep_alive_interval = std::chrono::seconds(5);
  /// A member is lost when nothing has come from it for so long.
  Moment silence_window = std::chrono::seconds(15);
  /// How long the workers of a dead agent may take to die before others take their place.
  Moment death_grace = std::chrono::milliseconds(200);

  bool elastic() const { return min_nodes < max_nodes; }
  /// The first loss of any node ends the job.
  bool one_round() const { return !elastic() && max_restarts == 0; }
};

/// Why workers are being stopped, or the job ends.
struct JobFailure {
  std::int32_t rank = -1;       ///< -1: no rank but a node, see text
  std::int32_t node_rank = -1;  ///< -1: not known, or none
  std::int32_t code = 0;
  std::int32_t signal = 0;
  std::int32_t pid = 0;
  std::string host;
  std::string text;                ///< where code and signal do not say it: "node 1 (h1) is gone"
  std::int32_t dumped = 0;         ///< 1: a core was written
  std::int32_t out_of_memory = 0;  ///< 1: the OOM killer ended it
  std::string tail = {};           ///< of the rank's standard error

  /// "rank 3 on node 1 (h1) failed: SIGKILL"
  std::string describe() const;
  int exit_code() const;
  /// Whether an operator stopped or drained a node, so that nothing has failed.
  bool by_operator() const { return rank < 0 && (code != 0 || signal != 0); }
  /// Whether newcomers are the reason, so that nobody is to blame.
  bool is_nobodys() const { return rank < 0 && host.empty() && code == 0 && signal == 0; }
  friend bool operator==(const JobFailure&, const JobFailure&) = default;
};

// --- an agent to the head

/// The first message. Its sender has no live workers, and will have none before it gets Start.
struct Hello {
  std::string run_id;
  std::string host;
  std::string role;
  std::int32_t node_rank = kNoNodeRank;
  std::int32_t local_ranks = 1;
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  std::uint64_t agent = 0;  ///< random; the same when this agent comes back
  std::int32_t connection =
      0;  ///< its first, second, ...: what it said by an earlier one may come late
  std::int32_t last_round = kNoRound;
  std::int32_t last_group_rank = kNoNodeRank;  ///< in last_round
  std::int32_t last_group_size = 0;            ///< of last_round
  /// The round in which all its workers have ended well without a stop; kNoRound: none.
  std::int32_t done_round = kNoRound;
  std::int32_t restarts = 0;  ///< of the job, as it knows

  /// "node 1 (h1)"; "h1" while it has no number.
  std::string describe() const;
};
/// Says only that the agent lives, as every message does.
struct Beat {};
/// The answer to Prepare.
struct StoreReady {
  std::int32_t round = kNoRound;
  std::string address;  ///< empty: that by which the head sees this agent
  std::int32_t port = 0;
};
/// The answer to Stop, or after Failed: no process of that round's workers is left.
struct Stopped {
  std::int32_t round = kNoRound;
};
/// A worker has failed, or could not be started; the agent is stopping the others of its own.
struct Failed {
  std::int32_t round = kNoRound;
  JobFailure failure;
};
/// All its workers have ended well, and nothing is left of them.
struct Done {
  std::int32_t round = kNoRound;
};
/// The agent's operator stops it. Its connection ends when its workers are gone.
struct Leaving {
  JobFailure why;
};

/// How one of its workers ended badly; comes before Stopped. For the head's report.
struct WorkerEnd {
  std::int32_t round = kNoRound;
  std::int32_t rank = 0;
  std::int32_t local_rank = 0;
  std::int32_t code = 0;
  std::int32_t signal = 0;
  std::int32_t pid = 0;
  std::int32_t stopped = 0;  ///< 1: it was told to end
  std::int32_t dumped = 0;
  std::int32_t out_of_memory = 0;
  std::uint64_t time = 0;  ///< seconds since the epoch, by its own clock
  std::string host;
  std::string error_file;
  std::string text;             ///< why
  std::string tail = {};        ///< of its standard error; of the first that failed there
  std::int32_t more = 0;        ///< of its node, that are not told: of the last that is
  std::string stack = {};       ///< where it crashed, a frame a line
  std::string core = {};        ///< where its core is, or why there is none
  std::string operations = {};  ///< its last ones, a line each
};
/// The most that one node sends.
inline constexpr std::size_t kMostWorkerEnds = 64;

using AgentMessage =
    std::variant<Hello, Beat, StoreReady, Stopped, Failed, Done, Leaving, WorkerEnd>;

// --- the head to an agent

struct Accepted {
  Moment keep_alive_interval{};
  Moment silence_window{};
};
/// How often an agent beats: three times in a window at the least.
inline Moment beat_interval(const Accepted& accepted) {
  return std::min(accepted.keep_alive_interval, accepted.silence_window / 3);
}
struct Refused {
  std::string text;
};
/// Why a member that is in no round waits. Sent when that changes.
struct Standing {
  enum class Kind : std::int32_t {
    kWaiting,   ///< for the end of the round that is on
    kSpare,     ///< for a place
    kLastCall,  ///< enough are here; others may still come
  };
  Kind kind = Kind::kWaiting;
  std::int32_t nodes = 0;  ///< that are here
};
/// To the agent that will be group rank 0: open an empty store for the workers of this round.
struct Prepare {
  std::int32_t round = kNoRound;
};
struct Start {
  std::int32_t round = kNoRound;
  std::int32_t group_rank = 0;
  std::int32_t group_world_size = 1;
  std::int32_t base_rank = 0;
  std::int32_t world_size = 1;
  std::int32_t role_base_rank = 0;  ///< counted among the ranks of its own role
  std::int32_t role_world_size = 1;
  std::int32_t restart_count = 0;  ///< failures so far; changes of membership do not count
  std::string master_address;
  std::int32_t master_port = 0;
};
/// End the workers of this round and say Stopped.
struct Stop {
  std::int32_t round = kNoRound;
  JobFailure cause;
};
/// The job is over, for good.
struct Close {
  enum class Outcome : std::int32_t { kSucceeded, kFailed };
  Outcome outcome = Outcome::kSucceeded;
  JobFailure failure;  ///< of kFailed

  /// "it has ended well", or what has failed.
  std::string describe() const;
};

/// The answer to Beat: the head is alive.
struct Echo {};
/// The last message to a member that the head has given up: others may take its ranks.
struct Evicted {
  std::string text;
};

using HeadMessage =
    std::variant<Accepted, Refused, Standing, Prepare, Start, Stop, Close, Echo, Evicted>;

}  // namespace dtrun::rendezvous::rounds
