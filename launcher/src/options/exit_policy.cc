#include "options/exit_policy.h"

#include <algorithm>
#include <climits>
#include <string>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/split.h"

namespace dtrun::launcher {
namespace {

[[noreturn]] void reject() {
  throw base::Error(base::ErrorCode::kUsage,
                    "must be first, max, rank:R, or map:CODE=CODE,... with codes from 0 to 255, "
                    "where * is any other code and oom a rank that the OOM killer has ended");
}

int read_number(std::string_view text, int most) {
  const auto number = base::parse_integer(std::string(text));
  if (!number || *number < 0 || *number > most) reject();
  return static_cast<int>(*number);
}

void read_rule(std::string_view rule, ExitPolicy& policy) {
  const auto equals = rule.find('=');
  if (equals == std::string_view::npos) reject();
  const std::string_view from = rule.substr(0, equals);
  const int to = read_number(rule.substr(equals + 1), 255);
  if (from == "*")
    policy.otherwise = to;
  else if (from == "oom")
    policy.out_of_memory = to;
  else
    policy.map[read_number(from, 255)] = to;
}

}  // namespace

ExitPolicy parse_exit_policy(std::string_view text) {
  ExitPolicy policy;
  if (text == "first") return policy;
  if (text == "max") {
    policy.kind = ExitPolicy::Kind::kMax;
  } else if (text.starts_with("rank:")) {
    policy.kind = ExitPolicy::Kind::kRank;
    policy.rank = read_number(text.substr(5), INT_MAX);
  } else if (text.starts_with("map:")) {
    for (const std::string_view rule : base::split(text.substr(4), ',')) read_rule(rule, policy);
  } else {
    reject();
  }
  return policy;
}

int exit_code_by(const ExitPolicy& policy, const std::vector<FailedRank>& failed) {
  FailedRank chosen = failed.front();
  for (const FailedRank& rank : failed) {
    if (policy.kind == ExitPolicy::Kind::kMax && rank.code > chosen.code) chosen = rank;
    if (policy.kind == ExitPolicy::Kind::kRank && rank.rank == policy.rank) chosen = rank;
  }
  if (chosen.out_of_memory && policy.out_of_memory) return *policy.out_of_memory;
  const auto found = policy.map.find(chosen.code);
  if (found != policy.map.end()) return found->second;
  return policy.otherwise.value_or(chosen.code);
}

}  // namespace dtrun::launcher
