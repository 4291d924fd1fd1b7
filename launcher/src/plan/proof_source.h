// ProofSource: of what a job's agents make the proof that they belong to it, by what the user has
// given. Pure.
#pragma once

#include "dtrun/base/env.h"
#include "options/options.h"

namespace dtrun::launcher {

inline constexpr const char* kTokenVariable = "DTRUN_TOKEN";

enum class ProofSource {
  kNone,
  kVariable,  ///< the token in kTokenVariable
  kFile,      ///< the token in Options::token_file
  kMunge,
  kMungeIfItRuns,  ///< nobody has said; without munged there is no proof
};

/// @throws Error kUsage: two of them are given
ProofSource choose_proof(const Options& options, const base::Environment& environment);

}  // namespace dtrun::launcher
