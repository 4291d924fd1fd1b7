// FlightTrace: the operations of a round's ranks on one time line, as a file for Perfetto: what
// dtrun --trace writes of a node's ranks, and what dtrun-explain --trace joins for several nodes.
// docs/tracing.md describes the file; this header and its .cc are its only writer and reader. Pure,
// but for reading the job page.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/job_page.h"

namespace dtrun::rendezvous {

/// How many of its last operations each rank of a traced node keeps: 16384, which are 3 MiB of
/// memory, and fewer where there are more than 8 ranks, so that neither the file, of some 520 bytes
/// for each, nor what makes it grows with them; 1024 at least.
std::size_t trace_length(int local_ranks);

/// A node's monotonic clock.
struct TraceClock {
  int node = 0;
  std::int64_t epoch_ns = 0;  ///< added to its times gives those since the epoch
  std::int64_t shift_ns = 0;  ///< what was added to the node's times for this trace
  /// The shift is right to so much, as collectives between the nodes show; nullopt: it is that of
  /// the nodes' wall clocks, or none was needed.
  std::optional<std::int64_t> uncertainty_ns;
};

struct RankTrace {
  int rank = -1;
  int node = 0;
  int pid = 0;
  std::uint64_t begun = 0;               ///< operations; the last ones of them follow
  std::int64_t until_ns = 0;             ///< when they were read
  std::vector<HistoryEntry> operations;  ///< oldest first
};

struct FlightTrace {
  std::string job;     ///< the run's id
  int round = 0;       ///< "attempt" in the names of log folders
  int world_size = 0;  ///< 0: not known
  std::string cause;   ///< why the round has ended; empty: by itself
  std::vector<TraceClock> clocks;
  std::vector<RankTrace> ranks;
};

/// What the ranks of this page show at this moment. The page says nothing of job, node and round.
FlightTrace read_trace(const JobPage& page);

/// Chrome's trace event format: a process for each rank, a thread for each group, and more where
/// calls of a group go on at the same time; a slice for each operation, arrows between those of one
/// call.
std::string to_json(const FlightTrace& trace);
/// @param source names the text in errors. @throws Error kProtocol for what is none
FlightTrace flight_trace_of(const boost::json::value& document, const std::string& source);

/// All nodes' of a round, by the clock of the first part's node. The others' clocks are shifted so
/// that no rank ends a collective before another has begun it, where the nodes have one in common;
/// else by their wall clocks.
/// @throws Error kInvalidArgument for none, for parts of different rounds, and where two have a
/// rank
FlightTrace joined(std::vector<FlightTrace> parts);

}  // namespace dtrun::rendezvous
