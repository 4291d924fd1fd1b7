#include "options/restart_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <string>
#include <string_view>

#include "dtrun/base/env.h"
#include "dtrun/base/split.h"
#include "text/duration_text.h"

namespace dtrun::launcher {
namespace {

using rendezvous::rounds::RestartScope;
using rendezvous::rounds::RoundSettings;

constexpr auto kAlikeWindow = std::chrono::seconds(10);

void read_backoff(const std::string& text, RoundSettings& rounds) {
  const auto colon = text.find(':');
  const auto first = parse_duration(std::string_view(text).substr(0, colon));
  auto most = first;
  if (first) most = std::max(*first, rounds.most_backoff);
  if (colon != std::string::npos) most = parse_duration(std::string_view(text).substr(colon + 1));
  if (!first || !most || *most < *first)
    throw demand("must be SECONDS or SECONDS:MOST, the most not less than the first");
  rounds.backoff = *first;
  rounds.most_backoff = *most;
}

void read_rule(std::string_view rule, RoundSettings& rounds) {
  const auto colon = rule.find(':');
  const std::string_view name = rule.substr(0, colon);
  const std::string_view value = colon == std::string_view::npos ? "" : rule.substr(colon + 1);
  if (name == "alike") {
    const auto window = value.empty() ? kAlikeWindow : parse_duration(value);
    if (window) rounds.alike_window = *window;
    if (window) return;
  } else if (name == "code") {
    const auto code = base::parse_integer(value);
    if (code && *code >= 1 && *code <= 255)
      return rounds.final_codes.push_back(static_cast<std::int32_t>(*code));
  }
  throw demand(fmt::format(
      "has the rule '{}'; there are alike[:TIME], code:N with N from 1 to 255, and none alone",
      rule));
}

}  // namespace

void bind_restart_options(OptionBinding& binding, RoundSettings& rounds) {
  binding.parsed("max-restarts", rounds.max_restarts, within(0, INT_MAX));
  binding.choice("restart-scope", rounds.restart_scope,
                 {{"job", RestartScope::kJob}, {"agent", RestartScope::kAgent}});
  binding.parsed("restart-backoff",
                 [&rounds](const std::string& text) { read_backoff(text, rounds); });
  binding.parsed("give-up-on", [&rounds](const std::string& rules) {
    if (rules == "none") return;
    for (const std::string_view rule : base::split(rules, ',')) read_rule(rule, rounds);
  });
}

}  // namespace dtrun::launcher
