#include "verdict/event_log.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "dtrun/base/exit_status.h"

namespace dtrun::launcher {
namespace {

std::string state_of(const RankOutcome& rank) {
  if (rank.end.success()) return "SUCCEEDED";
  return rank.end.stopped != 0 ? "TERMINATED" : "FAILED";
}

std::string_view backend_name(Rendezvous rendezvous) {
  switch (rendezvous) {
    case Rendezvous::kStatic:
      return "static";
    case Rendezvous::kEtcd:
      return "etcd-v2";
    case Rendezvous::kC10d:
    case Rendezvous::kFile:
      break;
  }
  return "c10d";
}

}  // namespace

std::vector<std::string> worker_events(const LaunchPlan& plan, const JobOutcome& outcome,
                                       const std::string& host,
                                       std::chrono::system_clock::time_point now) {
  std::vector<std::string> lines;
  for (const RankOutcome& rank : outcome.ranks) {
    const std::string state = state_of(rank);
    boost::json::object metadata;
    metadata["run_id"] = plan.run_id;
    metadata["global_rank"] = outcome.base_rank + rank.end.local_rank;
    metadata["group_rank"] = plan.shown_node(outcome.group_rank);
    metadata["local_rank"] = outcome.first_local_rank + rank.end.local_rank;
    metadata["worker_id"] = std::to_string(rank.end.pid);
    metadata["role"] = plan.options.role;
    metadata["hostname"] = host;
    metadata["state"] = state;
    metadata["rdzv_backend"] = backend_name(plan.options.rendezvous);
    metadata["agent_restarts"] = outcome.restarts;
    metadata["entry_point"] = plan.program_name(rank.end.local_rank);
    metadata["raw_error"] = nullptr;
    if (state == "FAILED")
      metadata["raw_error"] = rank.report
                                  ? rank.report->message
                                  : base::ExitStatus{rank.end.code, rank.end.signal}.describe();
    boost::json::object record;
    record["name"] = "torchelastic.worker.status." + state;
    record["source"] = "WORKER";
    record["timestamp"] =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
    record["metadata"] = std::move(metadata);
    lines.push_back(boost::json::serialize(record));
  }
  return lines;
}

}  // namespace dtrun::launcher
