#include "dtrun/rendezvous/absent_agents.h"

namespace dtrun::rendezvous::rounds {

void AbsentAgents::add(std::uint64_t agent, Moment until) {
  remove(agent);
  until_[agent] = until;
  ends_.insert(until);
}

void AbsentAgents::remove(std::uint64_t agent) {
  const auto found = until_.find(agent);
  if (found == until_.end()) return;
  ends_.erase(ends_.find(found->second));
  until_.erase(found);
}

void AbsentAgents::clear() {
  until_.clear();
  ends_.clear();
}

Moment AbsentAgents::of(std::uint64_t agent) const {
  const auto found = until_.find(agent);
  return found == until_.end() ? Moment::min() : found->second;
}

}  // namespace dtrun::rendezvous::rounds
