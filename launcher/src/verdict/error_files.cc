#include "verdict/error_files.h"

#include <fmt/core.h>

#include <chrono>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/rendezvous/failure_report.h"
#include "verdict/core_file.h"
#include "verdict/stack_lines.h"

namespace dtrun::launcher {

using base::Deadline;
using base::log::Component;

namespace {

// A long time for a disk, and a short one for a user who waits for the verdict.
constexpr auto kPatience = std::chrono::seconds(5);
// For the programs that find the lines of stacks, after that.
constexpr auto kLinePatience = std::chrono::seconds(3);

}  // namespace

struct ErrorFiles::Finding {
  std::size_t index = 0;  // of the rank, in JobOutcome::ranks
  std::string path;       // empty: there is no file
  CoreFacts core_facts = {};
  std::optional<rendezvous::FailureReport> report = {};
  std::string trouble = {};
  std::string core = {};
  std::vector<rendezvous::CrashFrame> frames = {};  // where the report is of a crash

  void read() {
    core = describe_core(core_facts);
    if (path.empty()) return;
    try {
      report = rendezvous::read_failure_report(path);
      if (report) frames = rendezvous::parse_crash_stack(report->call_stack);
    } catch (const base::Error& error) {
      trouble = error.what();
    }
  }
};

// Frames that several ranks have are looked up once.
void ErrorFiles::make_stacks_readable(std::vector<Finding>& findings) {
  std::vector<std::vector<rendezvous::CrashFrame>> stacks;
  std::vector<Finding*> crashed;
  for (Finding& finding : findings) {
    if (finding.frames.empty()) continue;
    stacks.push_back(finding.frames);
    crashed.push_back(&finding);
  }
  const std::vector<std::string> texts = readable_stacks(stacks, Deadline::after(kLinePatience));
  for (std::size_t i = 0; i < crashed.size(); ++i) crashed[i]->report->call_stack = texts[i];
}

void ErrorFiles::read(const LogFolder& folder, JobOutcome& outcome,
                      base::EventLoop::Callback done) {
  std::vector<Finding> wanted;
  for (std::size_t i = 0; i < outcome.ranks.size(); ++i) {
    const RankEnd& end = outcome.ranks[i].end;
    if (end.success()) continue;
    // A signal of dtrun's own is nobody's crash.
    CoreFacts facts{end.pid, end.stopped != 0 ? 0 : end.signal, end.dumped != 0, end.time};
    wanted.push_back({i, folder.file_of(outcome.round, end.local_rank), facts});
  }
  if (wanted.empty()) return done();
  done_ = std::move(done);
  patience_.start(Deadline::after(kPatience), [this, path = folder.path()] {
    give_up(fmt::format("the file system of {} has not answered within {}", path,
                        base::format_duration(kPatience)));
  });
  try {
    call_ = std::make_unique<base::BackgroundCall>(
        loop_, [this, &folder, &outcome, findings = std::move(wanted)]() mutable {
          for (Finding& finding : findings) finding.read();
          return [this, &folder, &outcome, findings] { take(findings, folder, outcome); };
        });
  } catch (const base::Error& error) {  // there is no thread or descriptor for it
    give_up(error.what());
  }
}

void ErrorFiles::take(const std::vector<Finding>& findings, const LogFolder& folder,
                      JobOutcome& outcome) {
  for (const Finding& finding : findings) {
    RankOutcome& rank = outcome.ranks[finding.index];
    rank.report = finding.report;
    rank.core = finding.core;
    // Not within the reason of the end: it stands below that.
    if (!finding.frames.empty()) rank.stack = rank.report->call_stack;
    if (rank.report && folder.kept()) rank.error_file = finding.path;
    if (!finding.trouble.empty())
      base::log::warning(Component::kLauncher, "rank {}: {}",
                         outcome.base_rank + rank.end.local_rank, finding.trouble);
  }
  find_lines(findings, outcome);
}

// Until then, and where it takes too long, stacks have addresses only.
void ErrorFiles::find_lines(std::vector<Finding> findings, JobOutcome& outcome) {
  std::erase_if(findings, [](const Finding& finding) { return finding.frames.empty(); });
  if (findings.empty()) return end();
  patience_.start(Deadline::after(kLinePatience * 2), [this] {
    base::log::warning(Component::kLauncher,
                       "the files of the program are read too slowly: its "
                       "stack is shown by addresses");
    end();
  });
  try {
    call_ = std::make_unique<base::BackgroundCall>(
        loop_, [this, &outcome, findings = std::move(findings)]() mutable {
          make_stacks_readable(findings);
          return [this, &outcome, findings] {
            for (const Finding& finding : findings) {
              RankOutcome& rank = outcome.ranks[finding.index];
              rank.report = finding.report;
              rank.stack = finding.report->call_stack;
            }
            end();
          };
        });
  } catch (const base::Error&) {
    end();
  }
}

void ErrorFiles::give_up(const std::string& why) {
  base::log::warning(Component::kLauncher, "error.json of the failed ranks is not reported: {}",
                     why);
  end();
}

void ErrorFiles::end() {
  patience_.cancel();
  call_.reset();
  std::exchange(done_, nullptr)();
}

}  // namespace dtrun::launcher
