#include "verdict/failure_object.h"

#include <boost/json/array.hpp>
#include <chrono>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "options/line_tag.h"

namespace dtrun::launcher {
namespace {

using rendezvous::rounds::WorkerEnd;

boost::json::array lines_of(const std::string& text) {
  boost::json::array lines;
  for (const std::string_view line : base::split(text, '\n'))
    if (!line.empty()) lines.emplace_back(std::string(line));
  return lines;
}

boost::json::object object_of(const LaunchPlan& plan, const WorkerEnd& end) {
  boost::json::object object;
  object["rank"] = end.rank;
  object["local_rank"] = end.local_rank;
  object["host"] = end.host;
  object["pid"] = end.pid;
  object["program"] = plan.program_name(end.local_rank);
  object["time"] = iso_time(std::chrono::system_clock::time_point(std::chrono::seconds(end.time)));
  object["exitcode"] = end.signal != 0 ? -end.signal : end.code;
  object["signal"] = nullptr;
  if (end.signal != 0) object["signal"] = base::signal_name(end.signal);
  object["error_file"] = nullptr;
  if (!end.error_file.empty()) object["error_file"] = end.error_file;
  object["text"] = end.text;
  object["stopped"] = end.stopped != 0;
  object["out_of_memory"] = end.out_of_memory != 0;
  object["core"] = end.dumped != 0;
  object["core_file"] = nullptr;
  if (end.dumped != 0 && !end.core.empty()) object["core_file"] = end.core;
  object["stack"] = lines_of(end.stack);
  object["last_operations"] = lines_of(end.operations);
  object["stderr_tail"] = end.tail;
  return object;
}

}  // namespace

boost::json::object failure_object(const LaunchPlan& plan, const FailedRanks& failed) {
  boost::json::array failures;
  failures.push_back(object_of(plan, failed.root));
  for (const WorkerEnd& end : failed.ends)
    if (end.rank != failed.root.rank) failures.push_back(object_of(plan, end));
  boost::json::object object;
  object["root_cause"] = failures[0];
  object["failures"] = std::move(failures);
  object["unlisted"] = unlisted(failed.ends);
  return object;
}

}  // namespace dtrun::launcher
