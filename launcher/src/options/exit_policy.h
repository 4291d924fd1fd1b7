// ExitPolicy: which of the failed ranks' exit codes is dtrun's own (--exit). Pure.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrun::launcher {

struct ExitPolicy {
  enum class Kind {
    kFirst,  ///< that of the rank that failed first
    kMax,    ///< the highest of those that failed by themselves
    kRank,   ///< one rank's, where it has failed; else the first's
  };
  Kind kind = Kind::kFirst;
  int rank = 0;                      ///< of kRank
  std::map<int, int> map;            ///< from a rank's code to dtrun's
  std::optional<int> otherwise;      ///< for codes that are not in the map; none: they stay
  std::optional<int> out_of_memory;  ///< for a rank that the OOM killer has ended
};

/// How one rank has failed.
struct FailedRank {
  int rank = 0;
  int code = 0;  ///< as shells count: 128 + the signal
  bool out_of_memory = false;
};

/// first, max, rank:R or map:CODE=CODE,...,*=CODE,oom=CODE.
/// @throws Error kUsage what it must be
ExitPolicy parse_exit_policy(std::string_view text);

/// @param failed ranks that ended badly by themselves; the first cause is the first
int exit_code_by(const ExitPolicy& policy, const std::vector<FailedRank>& failed);

}  // namespace dtrun::launcher
