#include "doctor/agreement.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>

#include "dtrun/base/deadline.h"

namespace dtrun::doctor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Lines of a job's log are merged by time.
constexpr Nanoseconds kNotable = milliseconds(100);
// MUNGE takes credentials for 5 minutes.
constexpr Nanoseconds kGrave = seconds(60);

std::string text_of(Nanoseconds time) {
  return base::format_duration(time);
}

Finding reached(const std::vector<Reach>& reaches) {
  std::vector<std::string> hosts;
  Nanoseconds longest{};
  for (const Reach& reach : reaches) {
    if (std::ranges::find(hosts, reach.host) == hosts.end()) hosts.push_back(reach.host);
    longest = std::max(longest, reach.time);
  }
  return {"reaches", Verdict::good,
          fmt::format("{}; the slowest of {} ports answers after {}", fmt::join(hosts, ", "),
                      reaches.size(), text_of(longest))};
}

}  // namespace

ClockOffset clock_offset(const std::vector<ClockSample>& samples) {
  const auto trip = [](const ClockSample& sample) { return sample.answered - sample.asked; };
  const ClockSample& best = *std::ranges::min_element(samples, {}, trip);
  const Nanoseconds half = trip(best) / 2;
  return {best.theirs - best.asked - half, half};
}

Finding clock_finding(const std::string& reference, const ClockOffset& own,
                      const ClockOffset& of_reference) {
  const Nanoseconds offset = own.offset - of_reference.offset;
  const Nanoseconds uncertainty = own.uncertainty + of_reference.uncertainty;
  const Nanoseconds size = offset < Nanoseconds::zero() ? -offset : offset;
  Finding finding{"clock of hosts", Verdict::good,
                  fmt::format("{} {} {}, give or take {}", text_of(size),
                              offset < Nanoseconds::zero() ? "behind" : "ahead of", reference,
                              text_of(uncertainty))};
  const Nanoseconds sure = size - uncertainty;
  if (sure <= kNotable) return finding;
  finding.verdict = sure > kGrave ? Verdict::bad : Verdict::warning;
  finding.meaning =
      sure > kGrave
          ? "MUNGE and TLS refuse what seems to come from the past or the future; times in logs, "
            "traces and files do not compare"
          : "lines of logs and traces of several hosts are merged by time, and stand in a wrong "
            "order";
  finding.remedy = "the same time servers for all hosts: chronyc tracking, or timedatectl";
  return finding;
}

Findings reach_findings(const std::vector<Reach>& reaches) {
  Findings findings;
  std::vector<Reach> well;
  for (const Reach& reach : reaches) {
    if (reach.error.empty()) {
      well.push_back(reach);
      continue;
    }
    const std::string subject = "reaches " + reach.host;
    const std::string found = fmt::format("not at port {}: {}", reach.port, reach.error);
    const auto same = std::ranges::find(findings, subject, &Finding::subject);
    if (same != findings.end()) {
      same->found += "; " + found;
      continue;
    }
    findings.push_back(
        {subject, Verdict::bad, found,
         "agents meet at a port of the first host, and ranks connect to ports of the kernel's "
         "choice on every other host: jobs of these hosts do not start, or fail at their first "
         "collective",
         "let TCP through between the hosts (firewall, security group); the same address for a "
         "name on all hosts; --port-range=A:B keeps to few ports"});
  }
  if (!well.empty()) findings.insert(findings.begin(), reached(well));
  return findings;
}

std::vector<std::size_t> targets_of(std::size_t host, std::size_t hosts) {
  std::vector<std::size_t> targets;
  for (std::size_t other = 0; other < hosts; ++other) {
    const bool is_near = other == 0 || other == (host + 1) % hosts;
    if (other != host && (hosts <= kMostHostsForAllPairs || is_near)) targets.push_back(other);
  }
  return targets;
}

}  // namespace dtrun::doctor
