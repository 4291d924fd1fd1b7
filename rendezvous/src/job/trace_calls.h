// TraceCalls: which operations of different ranks are one call: the same collective of a group, or
// a message and its receive. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "dtrun/base/trace_file.h"
#include "dtrun/rendezvous/flight_trace.h"

namespace dtrun::rendezvous {

inline constexpr std::string_view kTraceFormat = "dtrun trace 1";

bool is_message(const HistoryEntry& entry);
/// Whether it has a place on a time line; what a rank has written wildly may have none.
bool is_traced(const HistoryEntry& entry);
/// "running", "done", "failed"
std::string_view state_name(const HistoryEntry& entry);
/// Of what still runs: when it was looked at.
std::int64_t end_of(const HistoryEntry& entry, std::int64_t until_ns);

/// Whose operation: places in FlightTrace::ranks and RankTrace::operations.
struct TracePlace {
  std::size_t rank;
  std::size_t operation;
  auto operator<=>(const TracePlace&) const = default;
};

/// A rank's part in a call of at least two ranks.
struct CallPart {
  std::uint64_t call = 0;
  base::TraceArrow::Part arrow = base::TraceArrow::Part::step;
  std::int64_t at_ns = 0;           ///< of the arrow
  int ranks = 0;                    ///< that have come, as far as the trace has them
  int last_rank = -1;               ///< global; it came last
  std::int64_t before_last_ns = 0;  ///< so much before that one this rank came
  std::vector<int> not_come;        ///< global ranks, where the operation is not done
};

class TraceCalls {
 public:
  /// @param trace outlives this
  explicit TraceCalls(const FlightTrace& trace);

  /// nullopt: no other rank of the trace is in that call.
  std::optional<CallPart> part_of(const TracePlace& place) const;
  /// The collectives that all their ranks have ended well, and in which each rank needs the others:
  /// none ends before all have begun.
  std::vector<std::vector<TracePlace>> meetings() const;

 private:
  using Places = std::vector<TracePlace>;
  void find_collectives();
  void find_messages();
  void add_call(Places places);
  void add_message(const TracePlace& send, const TracePlace& receive);
  std::vector<int> not_come(const Places& places) const;
  const HistoryEntry& entry(const TracePlace& place) const {
    return trace_.ranks[place.rank].operations[place.operation];
  }

  const FlightTrace& trace_;
  std::uint64_t calls_ = 0;
  std::vector<Places> collectives_;
  std::map<TracePlace, CallPart> parts_;
};

}  // namespace dtrun::rendezvous
