// AttentionScope: while it stands, another computes the attention of plain tensors, on this thread.
#pragma once

#include <functional>
#include <utility>

#include "autograd/surroundings.h"
#include "dtrun/dtensor/ops/attention.h"

namespace dtrun::dtensor {

using AttentionFunction = std::function<Tensor(const Tensor& query, const Tensor& key,
                                               const Tensor& value, const AttentionOptions&)>;

struct AttentionScope : Surrounding {
  explicit AttentionScope(AttentionFunction its_function) : function(std::move(its_function)) {}
  /// Null: none stands.
  static const AttentionScope* innermost();

  const AttentionFunction function;
};

}  // namespace dtrun::dtensor
