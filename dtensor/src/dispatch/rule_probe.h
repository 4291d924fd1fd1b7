// RuleProbe: while it lives, it records the rules of the operators that its thread calls, and makes
// one of them take a given rule instead of the cheapest. check_rule() is made with it.
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

  /// The probe of this thread; usually null.
  static RuleProbe* current();

  const std::vector<Call>& calls() const { return calls_; }
  /// Records the call. @return the rule that it must take, if one is given
  std::optional<sharding::AxisRule> note(std::string_view op,
                                         const std::vector<sharding::AxisRule>& rules);

 private:
  const std::optional<Forced> forced_;
  RuleProbe* const before_;
  std::vector<Call> calls_;
};

/// Parts whose reduction is `whole`, different on each rank. No part is the whole or neutral, so
/// that only an operation that commutes with the reduction gives the right result.
tensors::LocalTensor part_of(const tensors::LocalTensor& whole, ReduceOp op, int rank, int ranks);

}  // namespace dtrun::dtensor
