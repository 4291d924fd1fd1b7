#include "failure_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

constexpr std::size_t kWidth = 60;

std::string local_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
  return text;
}

std::string reason(const JobOutcome& outcome, const RankOutcome& rank) {
  if (rank.report && !rank.report->message.empty()) return rank.report->message;
  if (outcome.missing_rank && outcome.missing_rank->local_rank == rank.end.local_rank)
    return outcome.missing_cause;
  if (rank.end.signal != 0)
    return fmt::format("Signal {} ({}) received by PID {}", rank.end.signal,
                       base::signal_name(rank.end.signal), rank.end.pid);
  if (rank.end.victim_of >= 0)
    return fmt::format("ended because rank {} had failed", rank.end.victim_of);
  return "no error.json was written; the last lines of its standard error follow, if any";
}

std::string indent_lines(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "    ";
  }
  return result;
}

std::string entry(const JobOutcome& outcome, const RankOutcome& rank, int index,
                  const std::string& host) {
  const std::int64_t time =
      rank.report && rank.report->timestamp > 0 ? rank.report->timestamp : rank.end.time;
  return fmt::format(
      "[{}]:\n"
      "  time      : {}\n"
      "  host      : {}\n"
      "  rank      : {} (local_rank: {})\n"
      "  exitcode  : {} (pid: {})\n"
      "  error_file: {}\n"
      "  traceback : {}\n",
      index, local_time(time), host, outcome.base_rank + rank.end.local_rank, rank.end.local_rank,
      rank.end.signal != 0 ? -rank.end.signal : rank.end.code, rank.end.pid,
      rank.error_file.empty() ? "<N/A>" : rank.error_file, indent_lines(reason(outcome, rank)));
}

}  // namespace

std::string failure_table(const LaunchPlan& plan, const JobOutcome& outcome,
                          const std::string& host) {
  const RankOutcome* const root = root_cause(outcome);
  if (root == nullptr) return "";
  const std::string title = plan.program_name + " FAILED";
  const std::size_t width = std::min(kWidth, std::max(title.size(), kWidth));
  const std::string thick = std::string(width, '=') + "\n", thin = std::string(width, '-') + "\n";

  std::string others;
  int index = 1;
  for (const RankOutcome& rank : outcome.ranks)
    if (&rank != root && !rank.end.success()) others += entry(outcome, rank, index++, host);
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";

  std::string table = thick + title + "\n" + thin + "Failures:\n" + others + thin +
                      "Root Cause (first observed failure):\n" + entry(outcome, *root, 0, host) +
                      thick;
  if (!root->error_tail.empty()) {
    table += fmt::format("The last lines that rank {} wrote to its standard error:\n",
                         outcome.base_rank + root->end.local_rank);
    std::string tail = root->error_tail;
    if (tail.back() != '\n') tail += '\n';
    std::size_t begin = 0;
    while (begin < tail.size()) {
      const auto end = tail.find('\n', begin) + 1;
      table += "  | " + tail.substr(begin, end - begin);
      begin = end;
    }
  }
  return table;
}

}  // namespace dtrun::launcher
