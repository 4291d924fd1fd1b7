// AttentionScope: while it stands, another computes the attention of plain tensors, on this thread.
#pragma once

#include <functional>

#include "dtrun/dtensor/ops/attention.h"

namespace dtrun::dtensor {

using AttentionFunction = std::function<Tensor(const Tensor& query, const Tensor& key,
                                               const Tensor& value, const AttentionOptions&)>;

namespace attention_scope {

/// Scopes nest; the function outlives its scope.
void enter(const AttentionFunction& function);
void leave();
/// Null: none stands.
const AttentionFunction* innermost();

}  // namespace attention_scope
}  // namespace dtrun::dtensor
