// AbsentAgents: the agents of a round that cannot be heard. Part of a HeadState; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

/// Agents that were lost but may live or have live workers, each with the end of that time.
class AbsentAgents {
 public:
  void add(std::uint64_t agent, Moment until);
  void remove(std::uint64_t agent);
  void clear();
  /// From when on none of them can have live workers; Moment::min(): there is no such agent.
  Moment latest() const { return ends_.empty() ? Moment::min() : *ends_.rbegin(); }
  /// The same for one agent; Moment::min(): it is not among them.
  Moment of(std::uint64_t agent) const;

 private:
  std::map<std::uint64_t, Moment> until_;
  std::multiset<Moment> ends_;  // the same times
};

}  // namespace dtrun::rendezvous::rounds
