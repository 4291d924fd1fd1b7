#include "verdict/failure_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "output/line_fold.h"

namespace dtrun::launcher {
namespace {

constexpr std::size_t kWidth = 60;

using rendezvous::rounds::JobFailure;
using rendezvous::rounds::WorkerEnd;

std::string local_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
  return text;
}

std::string indent_lines(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

// One rank's, of whichever node.
std::string entry(const LaunchPlan& plan, const WorkerEnd& end, int index) {
  const std::string program =
      plan.programs.size() == 1
          ? ""
          : fmt::format("  program   : {}\n", plan.program_name(end.local_rank));
  return fmt::format(
      "[{}]:\n"
      "  time      : {}\n"
      "  host      : {}\n"
      "  rank      : {} (local_rank: {})\n"
      "{}"
      "  exitcode  : {} (pid: {})\n"
      "  error_file: {}\n"
      "  traceback : {}\n",
      index, local_time(static_cast<std::int64_t>(end.time)), end.host, end.rank, end.local_rank,
      program, end.signal != 0 ? -end.signal : end.code, end.pid,
      end.error_file.empty() ? "<N/A>" : end.error_file,
      indent_lines(end.stack.empty() ? end.text : end.text + "\n" + end.stack));
}

// Facts for which torchrun's layout has no line.
std::string note_of(const WorkerEnd& end, const WorkerEnd& root) {
  if (end.out_of_memory != 0)
    return fmt::format(
        "rank {} was ended by the kernel's OOM killer: its memory cgroup counted it. Give the job "
        "more memory, or make its ranks use less\n",
        end.rank);
  if (end.rank != root.rank || end.core.empty()) return "";
  return fmt::format("the core of rank {}: {}\n", end.rank, end.core);
}

// "ranks 0-1,3 were"; empty: there are none.
std::string subject(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  const bool one = ranks.size() == 1;
  return fmt::format("rank{} {} {}", one ? "" : "s", describe_ranks(ranks, 0),
                     one ? "was" : "were");
}

// Ranks whose end says nothing about themselves. A rank that ended with a code of its own chose
// that code.
std::string note_of_victims(const std::vector<WorkerEnd>& ends, const WorkerEnd& root) {
  std::vector<int> ended, exited;
  for (const WorkerEnd& end : ends)
    if (end.stopped != 0 && end.rank != root.rank)
      (end.signal != 0 ? ended : exited).push_back(end.rank);
  std::string note;
  if (!ended.empty())
    note += fmt::format("{} ended by dtrun after rank {} had failed\n", subject(ended), root.rank);
  if (!exited.empty())
    note += fmt::format("{} told to end by dtrun after rank {} had failed, and exited by {}\n",
                        subject(exited), root.rank, exited.size() == 1 ? "itself" : "themselves");
  return note;
}

// At most this many ranks are listed per node.
std::string note_of_more(const std::vector<WorkerEnd>& ends) {
  const int more = unlisted(ends);
  if (more == 0) return "";
  return fmt::format("{} more rank{} did not end well: of each node {} are listed\n", more,
                     more == 1 ? "" : "s", rendezvous::rounds::kMostWorkerEnds);
}

std::string quoted_lines(const std::string& title, std::string tail) {
  if (tail.empty()) return "";
  std::string text = title + ":\n";
  if (tail.back() != '\n') tail += '\n';
  std::size_t begin = 0;
  while (begin < tail.size()) {
    const auto end = tail.find('\n', begin) + 1;
    text += "  | " + tail.substr(begin, end - begin);
    begin = end;
  }
  return text;
}

std::string tail_lines(int rank, const std::string& tail) {
  return quoted_lines(fmt::format("The last lines that rank {} wrote to its standard error", rank),
                      tail);
}

// The first cause, if it is a rank of another node: as that node reported it, else as the head did.
WorkerEnd end_of(const JobFailure& failure, const std::vector<WorkerEnd>& ends) {
  for (const WorkerEnd& end : ends)
    if (end.rank == failure.rank) {
      WorkerEnd root = end;
      // The code of a rank that was given up says only that it was stopped.
      if (end.stopped != 0 && !failure.text.empty()) root.text = failure.text;
      return root;
    }
  WorkerEnd end;
  end.rank = failure.rank;
  end.local_rank = -1;
  end.code = failure.code;
  end.signal = failure.signal;
  end.pid = failure.pid;
  end.host = failure.host;
  end.text = failure.describe();
  end.tail = failure.tail;
  return end;
}

}  // namespace

int unlisted(const std::vector<WorkerEnd>& ends) {
  int more = 0;
  for (const WorkerEnd& end : ends) more += end.more;
  return more;
}

std::optional<FailedRanks> failed_ranks(const JobOutcome& outcome, const std::string& host) {
  FailedRanks failed;
  failed.ends = worker_ends(outcome, host);
  // The cause was another node's end or an operator's order, for which the ranks here were stopped.
  // Node 0 reports everything; the other nodes report only what they were told of the cause.
  const bool elsewhere = outcome.failed_elsewhere.has_value();
  if (elsewhere && (outcome.failed_elsewhere->rank < 0 || outcome.ends_elsewhere.empty()))
    return std::nullopt;
  failed.ends.insert(failed.ends.end(), outcome.ends_elsewhere.begin(),
                     outcome.ends_elsewhere.end());
  if (failed.ends.empty()) return std::nullopt;
  failed.root = elsewhere ? end_of(*outcome.failed_elsewhere, failed.ends) : failed.ends.front();
  std::ranges::stable_sort(failed.ends, {}, &WorkerEnd::rank);
  return failed;
}

std::string failure_table(const LaunchPlan& plan, const JobOutcome& outcome,
                          const std::string& host) {
  const std::optional<FailedRanks> failed = failed_ranks(outcome, host);
  if (!failed && outcome.failed_elsewhere && outcome.failed_elsewhere->rank >= 0)
    return tail_lines(outcome.failed_elsewhere->rank, outcome.failed_elsewhere->tail);
  if (!failed) return "";
  const auto& [ends, root] = *failed;
  const std::string title = plan.program_name(root.local_rank) + " FAILED";
  const std::string thick = std::string(kWidth, '=') + "\n", thin = std::string(kWidth, '-') + "\n";
  std::string others, notes;
  int index = 1;
  for (const WorkerEnd& end : ends) {
    if (end.rank != root.rank) others += entry(plan, end, index++);
    notes += note_of(end, root);
  }
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  return thick + title + "\n" + thin + "Failures:\n" + others + thin +
         "Root Cause (first observed failure):\n" + entry(plan, root, 0) + thick + notes +
         note_of_victims(ends, root) + note_of_more(ends) +
         quoted_lines(fmt::format("The last operations of rank {}", root.rank), root.operations) +
         tail_lines(root.rank, root.tail);
}

}  // namespace dtrun::launcher
