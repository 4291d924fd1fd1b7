// RuleProbe: while one stands, the operators called on its thread note their rules, and one of them
// takes the rule that it is told instead of the cheapest. What check_rule is made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dispatch/axis_rule.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

class RuleProbe {
 public:
  struct Call {
    std::string op;
    std::vector<sharding::AxisRule> rules;
  };
  struct Forced {
    std::size_t call;  ///< counted from 0
    std::size_t rule;
  };

  explicit RuleProbe(std::optional<Forced> forced = {});
  ~RuleProbe();
  RuleProbe(const RuleProbe&) = delete;
  RuleProbe& operator=(const RuleProbe&) = delete;

  /// Of this thread; none as a rule.
  static RuleProbe* current();

  const std::vector<Call>& calls() const { return calls_; }
  /// Notes the call. @return the rule that it takes, if it is told one
  std::optional<sharding::AxisRule> note(std::string_view op,
                                         const std::vector<sharding::AxisRule>& rules);

 private:
  const std::optional<Forced> forced_;
  RuleProbe* const before_;
  std::vector<Call> calls_;
};

/// Parts that make up `whole` when they are reduced, each rank's another: no part is the whole, and
/// none is neutral, so that only what commutes with the reduction gives the right result.
tensors::LocalTensor part_of(const tensors::LocalTensor& whole, ReduceOp op, int rank, int ranks);

}  // namespace dtrun::dtensor
