// RoundAdmission: whether an agent that says Hello may come in, and who has come so far. Pure.
#pragma once

#include <string>

#include "dtrun/rendezvous/round_head.h"

namespace dtrun::rendezvous::rounds {

struct Objection {
  enum class Kind {
    kNone,
    kStranger,       ///< it has come to the wrong job, or too late: the job does not mind
    kContradiction,  ///< it is of this job, and was started otherwise than the head
  };
  Kind kind = Kind::kNone;
  std::string text;
};

Objection objection_to(const HeadState& state, const Hello& hello);

/// "1 of 2:4 nodes are here"
std::string who_is_here(const HeadState& state);

/// "2 of 3 nodes have joined in 5 s (h1, h2)"; the missing by number where they have one.
std::string who_is_missing(const HeadState& state, Moment now);

/// "h1, h2"; the first few of many.
std::string hosts_of(const HeadState& state);

}  // namespace dtrun::rendezvous::rounds
