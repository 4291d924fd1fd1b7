// LegalLayoutsOf: while it stands, how the operands of one operator may lie: for one that works on
// cut operands by others, which are not its operands.
#pragma once

#include <array>
#include <span>
#include <string>

#include "autograd/call.h"
#include "move/legal_layouts.h"

namespace dtrun::dtensor {

template <typename A, typename V>
class LegalLayoutsOf : public LegalLayouts {
 public:
  /// All of them borrowed.
  LegalLayoutsOf(const Op<A, V>& op, std::span<const Tensor* const> inputs, const A& attributes)
      : op_(op), inputs_(inputs), attributes_(attributes) {}
  LegalLayoutsOf(const Op<A, V>& op, const Tensor& input, const A& attributes)
      : op_(op), only_{&input}, inputs_(only_), attributes_(attributes) {}
  LegalLayoutsOf(const Op<A, V>& op, const Tensor& input, A&& attributes) = delete;

  std::string nearest() const override {
    PerInput<Placed> placed(inputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      placed[i] = Placed(inputs_[i]->local(), inputs_[i]->spec());
    return nearest_layouts(view_of(op_, attributes_), placed.all());
  }

 private:
  const Op<A, V>& op_;
  const std::array<const Tensor*, 1> only_{};
  const std::span<const Tensor* const> inputs_;
  const A& attributes_;
};

}  // namespace dtrun::dtensor
