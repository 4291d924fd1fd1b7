// AbsentAgents: those of a round's agents that cannot be heard. Part of a HeadState; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

/// Agents that were lost and may live, or have live workers, and until when.
class AbsentAgents {
 public:
  void add(std::uint64_t agent, Moment until);
  void remove(std::uint64_t agent);
  void clear();
  /// When none of them can have live workers any more; Moment::min(): there is none.
  Moment latest() const { return ends_.empty() ? Moment::min() : *ends_.rbegin(); }
  /// Moment::min(): it is none of them.
  Moment of(std::uint64_t agent) const;

 private:
  std::map<std::uint64_t, Moment> until_;
  std::multiset<Moment> ends_;  // the same times
};

}  // namespace dtrun::rendezvous::rounds
