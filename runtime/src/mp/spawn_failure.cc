#include "spawn_failure.h"

#include <fmt/core.h>

#include <tuple>

#include "dtrun/runtime/mp.h"
#include "process_state.h"

namespace dtrun::mp {

using base::Error;
using base::ErrorCode;

bool SpawnFailure::has_failed() const {
  return !status.success() || outcome.state == Outcome::State::kNotBegun;
}

bool SpawnFailure::is_victim() const {
  return outcome.state == Outcome::State::kRaised &&
         (outcome.error_code == ErrorCode::kPeerFailed ||
          outcome.error_code == ErrorCode::kAborted);
}

bool came_before(const SpawnFailure& a, const SpawnFailure& b) {
  return std::tuple(a.is_victim(), a.outcome.time_ns) <
         std::tuple(b.is_victim(), b.outcome.time_ns);
}

std::exception_ptr exception_of(const SpawnFailure& failure) {
  const std::string who = fmt::format("process {} (pid {})", failure.rank, failure.pid);
  const Outcome& outcome = failure.outcome;
  if (outcome.state == Outcome::State::kRaised) {
    const std::string text =
        outcome.text.empty() ? outcome.type : outcome.type + ": " + outcome.text;
    return std::make_exception_ptr(ProcessRaisedException(
        Error(ErrorCode::kPeerFailed, fmt::format("{} raised {}", who, text)), failure.rank,
        failure.pid, outcome.type, outcome.text));
  }
  if (failure.status.signal == 0 && outcome.state == Outcome::State::kNotBegun)
    return std::make_exception_ptr(never_begun(who, failure.status));
  const int signal = failure.status.signal;
  return std::make_exception_ptr(ProcessExitedException(
      Error(ErrorCode::kPeerFailed,
            signal != 0 ? fmt::format("{} was ended by {}", who, failure.status.describe())
                        : fmt::format("{} ended with {}", who, failure.status.describe())),
      failure.rank, failure.pid, signal != 0 ? -signal : failure.status.code));
}

}  // namespace dtrun::mp
