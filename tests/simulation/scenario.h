// What a seed stands for: the settings of the job, its nodes, their network, what their workers do
// and which faults are thrown at them until when. Drawn once; the world then plays it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agenda.h"
#include "dtrun/rendezvous/round_member.h"
#include "random_source.h"

namespace dtrun::simulation {

/// Workers that fail by themselves end with a code from 1 to this, all of a round with the same
/// one.
inline constexpr int kFailureCodes = 3;

enum class Meeting {
  kFixedHead,  ///< c10d: node 0's agent is the head; without it the job is over
  kElected,    ///< etcd: whoever has the lease
};

enum class Fault {
  kAgentCrash,     ///< its workers die within death_grace
  kAgentReplaced,  ///< the same, and its successor starts at once
  kNodeCrash,      ///< nothing is said to anybody
  kAgentPause,     ///< SIGSTOP: the kernel goes on acknowledging
  kNodePause,      ///< of a whole machine
  kHeadPause,      ///< of the head's process
  kHeadNodePause,
  kHeadCrash,
  kCut,  ///< a node's network, both ways
  kOneWayCut,
  kReset,        ///< of one connection, both ends see it
  kHalfReset,    ///< only the member sees it
  kStall,        ///< loss and retransmission, shorter than the user timeout
  kRefusedDial,  ///< a dial fails though the head is there
  kSlowNode,     ///< messages of one node take long from now on
  kOperatorStop,
  kLateJoiner,     ///< a node that was planned for later, or a surplus one, starts
  kWorkerFailure,  ///< of one node's workers, now
  kStoreFailure,   ///< a store cannot be opened
  kHang,           ///< workers that end only by SIGKILL
  kDoubleHello,
  kStaleToHead,  ///< a message of an old round comes once more
  kStaleToMember,
  kLeaseCut,  ///< the head cannot reach etcd
  kCount
};
std::string_view fault_name(Fault fault);

/// The monotonic clock of a machine: an origin and a rate of its own. There is no wall clock: the
/// state machines have no way to ask for one.
struct Clock {
  std::int64_t origin = 0;
  std::int64_t parts_per_million = 0;  ///< how much too fast
  std::int64_t slept = 0;              ///< machine pauses that it did not count

  Moment local(Moment truth) const;
  /// The first moment at which it shows at least `local_time`.
  Moment truth(Moment local_time) const;
};

struct NodePlan {
  std::string host;
  int node_rank = -1;
  int local_ranks = 1;
  Moment start{};
  Clock clock;
};

struct Scenario {
  std::uint64_t seed = 0;
  Meeting meeting = Meeting::kFixedHead;
  rendezvous::rounds::RoundSettings settings;
  Moment rejoin_timeout{};
  rendezvous::rounds::AfterLoss after_loss{};
  std::vector<NodePlan> nodes;

  Moment delay_low{};
  Moment delay_high{};

  Moment work_low{};  ///< how long workers run
  Moment work_high{};
  Moment stop_grace{};       ///< until SIGKILL
  int failing_permille = 0;  ///< groups that fail by themselves
  int hanging_permille = 0;  ///< groups that SIGTERM does not end
  int store_failing_permille = 0;
  int double_hello_permille = 0;

  std::vector<Fault> faults;  ///< that may happen; none: a quiet run
  Moment fault_gap{};         ///< mean
  Moment faults_until{};
  Moment lease{};

  /// When everybody must have come to an end.
  Moment end_by() const;
};

Scenario draw_scenario(std::uint64_t seed);

}  // namespace dtrun::simulation
