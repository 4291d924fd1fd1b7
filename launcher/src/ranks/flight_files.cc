#include "ranks/flight_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dtrun/rendezvous/flight_record.h"
#include "dtrun/rendezvous/flight_trace.h"

namespace dtrun::launcher {

rendezvous::HistoryPlan FlightFiles::history_plan(const LaunchPlan& plan) {
  using rendezvous::HistoryPlan;
  if (plan.options.output.trace_file.empty()) return {};
  return {.length = rendezvous::trace_length(plan.local_ranks), .times = HistoryPlan::Times::exact};
}

void FlightFiles::write_record(const StartOrder& round) {
  const std::string path = around_.folder.flight_file(round.round, round.group_rank);
  if (path.empty()) return;
  rendezvous::FlightRecord record = rendezvous::read_flight(around_.page);
  const bool is_empty =
      std::all_of(record.ranks.begin(), record.ranks.end(),
                  [](const rendezvous::RankFlight& flight) { return flight.operations.empty(); });
  if (is_empty) return;
  record.job = around_.plan.run_id;
  record.node = round.group_rank;
  record.round = round.round;
  record.world_size = round.world_size;
  around_.output.write_file(
      path, [record = std::move(record)] { return rendezvous::to_json(record); },
      // The group may be gone by then, the link never is.
      [&link = around_.link, path, number = round.round](const std::string& failure) {
        link.send(MessageKind::kNote, GuardNote{number},
                  failure.empty()
                      ? fmt::format("what the ranks did last: dtrun-explain {}", path)
                      : fmt::format("the ranks' last operations are not kept: {}", failure));
      });
}

void FlightFiles::write_trace(const StartOrder& round) {
  const std::string path = around_.folder.trace_file(round.round, round.group_rank);
  if (path.empty()) return;
  rendezvous::FlightTrace trace = rendezvous::read_trace(around_.page);
  trace.job = around_.plan.run_id;
  trace.round = round.round;
  trace.world_size = round.world_size;
  for (rendezvous::TraceClock& clock : trace.clocks) clock.node = round.group_rank;
  std::uint64_t lost = 0;
  for (rendezvous::RankTrace& rank : trace.ranks) {
    rank.node = round.group_rank;
    lost += rank.begun - std::min<std::uint64_t>(rank.begun, rank.operations.size());
  }
  const std::string loss =
      lost == 0 ? "" : fmt::format(", without the first {} operations, which were too many", lost);
  around_.output.write_file(
      path, [trace = std::move(trace)] { return rendezvous::to_json(trace); },
      [&link = around_.link, path, loss, number = round.round](const std::string& failure) {
        link.send(MessageKind::kNote, GuardNote{number},
                  failure.empty() ? fmt::format("trace for ui.perfetto.dev: {}{}", path, loss)
                                  : fmt::format("there is no trace: {}", failure));
      });
}

}  // namespace dtrun::launcher
