#include "verdict/event_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "options/line_tag.h"
#include "output/notice.h"
#include "text/json_text.h"

namespace dtrun::launcher {
namespace {

namespace json = boost::json;
namespace rounds = rendezvous::rounds;

base::UniqueFd open_events(const std::string& path) {
  if (path.empty()) return {};
  // A FIFO without a reader is an error, and not waited for.
  base::UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file)
    throw base::Error(base::ErrorCode::kUsage, "cannot write --events=" + path,
                      std::generic_category().message(errno),
                      "name a file in a folder that is there and may be written to");
  return file;
}

}  // namespace

EventFile::EventFile(const LaunchPlan& plan)
    : plan_(plan), host_(base::host_name()), file_(open_events(plan.options.events_file)) {}

void EventFile::job_began() {
  write("job_start", nullptr,
        {{"program", plan_.program_name(-1)},
         {"local_ranks", plan_.local_ranks},
         {"min_nodes", plan_.options.rounds.min_nodes},
         {"max_nodes", plan_.options.rounds.max_nodes},
         {"max_restarts", plan_.options.rounds.max_restarts}});
}

void EventFile::round_began(const JobOutcome& outcome, int world_size) {
  write("round_start", &outcome,
        {{"first_rank", outcome.base_rank},
         {"local_ranks", outcome.local_ranks},
         {"world_size", world_size}});
}

void EventFile::ranks_started(const JobOutcome& outcome, const Spawned& spawned) {
  write("ranks_start", &outcome,
        {{"first_rank", outcome.base_rank},
         {"local_ranks", outcome.local_ranks},
         {"seconds", static_cast<double>(spawned.last - spawned.began) / 1e9}});
}

void EventFile::rank_ended(const JobOutcome& outcome, const RankEnd& end) {
  write("rank_end", &outcome,
        {{"rank", outcome.base_rank + end.local_rank},
         {"local_rank", outcome.first_local_rank + end.local_rank},
         {"program", plan_.program_name(end.local_rank)},
         {"pid", end.pid},
         {"exitcode", end.code},
         {"signal", end.signal},
         {"stopped", end.stopped != 0},
         {"out_of_memory", end.oom != 0}});
}

void EventFile::failed(const JobOutcome& outcome, const rounds::JobFailure& failure) {
  write("failure", &outcome,
        {{"rank", failure.rank < 0 ? json::value() : json::value(failure.rank)},
         {"cause", failure.describe()}});
}

void EventFile::round_ended(const JobOutcome& outcome, bool well) {
  write("round_end", &outcome, {{"success", well}});
}

void EventFile::job_ended(const JobOutcome& outcome, int exit_code) {
  write("job_end", &outcome, {{"exitcode", exit_code}});
}

void EventFile::write(std::string_view event, const JobOutcome* outcome, json::object facts) {
  if (!file_) return;
  json::object line = {{"time", iso_time(std::chrono::system_clock::now())},
                       {"event", event},
                       {"job", plan_.run_id},
                       {"host", host_}};
  if (outcome != nullptr) {
    const bool has_node = outcome->group_rank != rounds::kNoNodeRank;
    line["node"] = has_node ? json::value(plan_.shown_node(outcome->group_rank)) : json::value();
    line["round"] = outcome->round;
    line["restarts"] = outcome->restarts;
  }
  for (auto& [name, value] : facts) line[name] = std::move(value);
  const std::string text = json_text(line);
  const ssize_t written = ::write(file_.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  const int error = written < 0 ? errno : ENOSPC;
  print_text(NoticeLevel::kWarning,
             fmt::format("no more events are written to {}: {}\n", plan_.options.events_file,
                         std::generic_category().message(error)));
  file_.reset();
}

}  // namespace dtrun::launcher
