// Function: an operation with a gradient of one's own, as torch.autograd.Function. What it does may
// be made of any operations, or of none of ours; on a mesh forward and backward see distributed
// tensors.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

class FunctionNode;

namespace autograd {

/// What forward and backward share. Tensors are counted over all arguments, in order.
class FunctionContext {
 public:
  /// In forward: inputs, results or others; undefined ones, too. A second call replaces the first.
  void save_for_backward(const Tensors& tensors);
  /// In backward. @throws Error kInvalidArgument where one was changed in place since, or was given
  /// back after an earlier backward
  Tensors saved_tensors() const;
  /// What is no tensor: sizes, numbers, names.
  std::map<std::string, std::any> saved_data;

  bool needs_input_grad(std::size_t which) const {
    return which < needs_.size() && needs_[which] != 0;
  }
  /// In forward, of results. Integers are never differentiable.
  void mark_non_differentiable(const Tensors& results);
  /// A gradient that nobody gave is zeros in backward, unless this says that it is undefined.
  void set_materialize_grads(bool materialize) { materializes_ = materialize; }

 private:
  friend class dtensor::FunctionNode;
  std::vector<char> needs_;
  Tensors saved_;
  Tensors non_differentiable_;
  bool materializes_ = true;
  const FunctionNode* node_ = nullptr;  ///< in backward
};

using FunctionForward = std::function<Tensors(FunctionContext&)>;
using FunctionBackward = std::function<Tensors(FunctionContext&, const Tensors& gradients)>;

/// @param inputs the tensors among forward's arguments
Tensors apply_function(const std::type_info& function, const Tensors& inputs,
                       const FunctionForward& forward, FunctionBackward backward);

inline void append_inputs(Tensors& inputs, const Tensor& argument) {
  inputs.push_back(argument);
}
inline void append_inputs(Tensors& inputs, const Tensors& argument) {
  inputs.insert(inputs.end(), argument.begin(), argument.end());
}
template <typename Other>
void append_inputs(Tensors&, const Other&) {}

inline Tensors listed(Tensor one) {
  return {std::move(one)};
}
inline Tensors listed(Tensors many) {
  return many;
}

/// A struct F : Function<F> has
///
///     static Tensor forward(FunctionContext& ctx, args...);
///     static Tensor backward(FunctionContext& ctx, const Tensor& gradient);
///
/// and is called as F::apply(args...). The arguments are Tensor, Tensors, and anything else.
/// forward is not recorded; several results are Tensors, and so are the gradients then. backward
/// gives a gradient for each tensor among the arguments, in order, as Tensors where there are
/// several: undefined ones flow nowhere. Where it is made of public operations it can be
/// differentiated again.
template <typename F>
class Function {
 public:
  template <typename... Args>
  static auto apply(const Args&... args) {
    using Result = decltype(F::forward(std::declval<FunctionContext&>(), args...));
    static_assert(std::is_same_v<Result, Tensor> || std::is_same_v<Result, Tensors>,
                  "forward gives a Tensor, or several as Tensors");
    Tensors inputs;
    (append_inputs(inputs, args), ...);
    Tensors results = apply_function(
        typeid(F), inputs, [&](FunctionContext& ctx) { return listed(F::forward(ctx, args...)); },
        [](FunctionContext& ctx, const Tensors& gradients) {
          if constexpr (std::is_same_v<Result, Tensor>) {
            return listed(F::backward(ctx, gradients[0]));
          } else {
            return listed(F::backward(ctx, gradients));
          }
        });
    if constexpr (std::is_same_v<Result, Tensor>) {
      return std::move(results[0]);
    } else {
      return results;
    }
  }
};

}  // namespace autograd
}  // namespace dtrun::dtensor
