#include "dtrun/rendezvous/round_messages.h"

#include <fmt/core.h>

#include "dtrun/base/exit_status.h"

namespace dtrun::rendezvous::rounds {

std::string Hello::describe() const {
  return node_rank < 0 ? host : fmt::format("node {} ({})", node_rank, host);
}

std::string JobFailure::describe() const {
  if (!text.empty()) return text;
  return fmt::format("rank {} on node {} ({}) failed: {}", rank, node_rank, host,
                     base::ExitStatus{code, signal}.describe());
}

std::string Close::describe() const {
  return outcome == Outcome::kSucceeded ? "it has ended well" : failure.describe();
}

int JobFailure::exit_code() const {
  const int own = base::ExitStatus{code, signal}.shell_code();
  return own != 0 ? own : 1;
}

}  // namespace dtrun::rendezvous::rounds
