#include "plan/proof_source.h"

#include <fmt/core.h>

namespace dtrun::launcher {

ProofSource choose_proof(const Options& options, const base::Environment& environment) {
  std::vector<std::string> given;
  const bool in_variable = environment.contains(kTokenVariable);
  if (in_variable) given.emplace_back(kTokenVariable);
  if (!options.token_file.empty()) given.emplace_back("token_file in --rdzv_conf");
  if (options.proof == AgentProof::kMunge) given.emplace_back("token=munge in --rdzv_conf");
  if (options.proof == AgentProof::kNone) given.emplace_back("token=none in --rdzv_conf");
  if (given.size() > 1)
    throw base::Error(base::ErrorCode::kUsage,
                      fmt::format("two tokens are given, {} and {}", given[0], given[1]), "",
                      "leave one of them out");
  if (options.rounds.max_nodes == 1) return ProofSource::kNone;  // no other agent can come
  if (in_variable) return ProofSource::kVariable;
  if (!options.token_file.empty()) return ProofSource::kFile;
  if (options.proof == AgentProof::kNone) return ProofSource::kNone;
  return options.proof == AgentProof::kMunge ? ProofSource::kMunge : ProofSource::kMungeIfItRuns;
}

}  // namespace dtrun::launcher
