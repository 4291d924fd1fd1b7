#include "verdict/error_files.h"

#include <fmt/core.h>

#include <chrono>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/rendezvous/failure_report.h"

namespace dtrun::launcher {

using base::Deadline;
using base::log::Component;

namespace {

// A long time for a disk, and a short one for a user who waits for the verdict.
constexpr auto kPatience = std::chrono::seconds(5);

}  // namespace

struct ErrorFiles::Finding {
  std::size_t index = 0;  // of the rank, in JobOutcome::ranks
  std::string path;
  std::optional<rendezvous::FailureReport> report = {};
  std::string trouble = {};

  void read() {
    try {
      report = rendezvous::read_failure_report(path);
    } catch (const base::Error& error) {
      trouble = error.what();
    }
  }
};

void ErrorFiles::read(const LogFolder& folder, JobOutcome& outcome,
                      base::EventLoop::Callback done) {
  std::vector<Finding> wanted;
  for (std::size_t i = 0; i < outcome.ranks.size(); ++i) {
    const RankEnd& end = outcome.ranks[i].end;
    std::string path = folder.file_of(outcome.round, end.local_rank);
    if (!end.success() && !path.empty()) wanted.push_back({i, std::move(path)});
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
    if (rank.report && folder.kept()) rank.error_file = finding.path;
    if (!finding.trouble.empty())
      base::log::warning(Component::kLauncher, "rank {}: {}",
                         outcome.base_rank + rank.end.local_rank, finding.trouble);
  }
  end();
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
