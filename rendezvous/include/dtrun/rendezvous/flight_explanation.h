// What the last operations of all ranks say about a job that hangs or has failed: in which
// collective somebody waits, who has not come to it, whose calls differ, who waits in a circle.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "dtrun/rendezvous/flight_record.h"

namespace dtrun::rendezvous {

struct FlightFinding {
  enum class Kind {
    differing,  ///< members called different things in one place
    missing,    ///< members have not come, and wait nowhere themselves
    behind,     ///< nobody waits in the group, but members have made fewer calls than others
    circle,     ///< ranks wait for one another
    unknown,    ///< of members that have not come there is no record
    waiting,    ///< members have not come because they wait elsewhere
    together,   ///< all members are in the operation
  };
  Kind kind;
  std::string text;        ///< sentences
  std::vector<int> ranks;  ///< global: who differs, has not come, or waits in the circle
  std::string group;       ///< the name, and its members where several have that name
  std::uint64_t sequence = 0;
  /// Since when somebody waits there, in seconds since the epoch; 0: nobody does any more.
  double since = 0;
  bool is_message = false;  ///< a send or receive, which may have been posted long ahead
};

/// The causes come first, then what follows from them. Empty: nobody waits.
/// @param ranks of one round; a rank that is named twice counts once, with the longer record
/// @param now seconds since the epoch, for how long somebody has waited
std::vector<FlightFinding> explain_flights(std::vector<RankFlight> ranks, int world_size,
                                           double now);

/// "all_reduce #41 of group 'world' (f32 x 1024, sum) at train.cc:12".
std::string describe(const FlightOperation& operation);

/// "rank 2", "ranks 0, 1 and 3", "ranks 0-7 and 9": sorted, each once.
std::string rank_list_text(std::vector<int> ranks);

}  // namespace dtrun::rendezvous
