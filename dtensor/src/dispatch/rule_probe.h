// RuleProbe: while it lives, it records the rules of the operators that its thread calls, and makes
// one of them take a given rule instead of the cheapest. check_rule() is made with it, and the test
// of what the rules leave out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dispatch/rules.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

class RuleProbe {
 public:
  struct Call {
    std::string op;
    std::vector<Meta> inputs;
    std::vector<sharding::AxisRule> rules;
  };
  struct Forced {
    std::size_t call;         ///< counted from 0
    sharding::AxisRule rule;  ///< one of the call's, or one that it does not declare
  };

  explicit RuleProbe(std::optional<Forced> forced = {});
  ~RuleProbe();
  RuleProbe(const RuleProbe&) = delete;
  RuleProbe& operator=(const RuleProbe&) = delete;

  /// The probe of this thread; usually null.
  static RuleProbe* current();

  const std::vector<Call>& calls() const { return calls_; }
  /// Records the call. @return the rule that it must take, if one is given
  std::optional<sharding::AxisRule> note(std::string_view op, Metas inputs,
                                         const std::vector<sharding::AxisRule>& rules);

 private:
  const std::optional<Forced> forced_;
  RuleProbe* const before_;
  std::vector<Call> calls_;
};

/// Parts whose reduction is `whole`, different on each rank. No part is the whole or neutral, so
/// that only an operation that commutes with the reduction gives the right result.
/// @param operand of the call: the greatest elements of two lie on different ranks
tensors::LocalTensor part_of(const tensors::LocalTensor& whole, ReduceOp op, int rank, int ranks,
                             std::size_t operand);

}  // namespace dtrun::dtensor
