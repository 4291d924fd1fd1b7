// Op: one definition per operator: what its result is, how it may be cut, the kernel on what a rank
// holds, and its gradient. Constants; the address of one is its name for the cache.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dispatch/rules.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

using tensors::LocalTensor;
using tensors::Shape;

// What gradients are made of, a room above.
class Tensor;
using Tensors = std::vector<Tensor>;
template <typename A, typename V>
class Context;

/// Attributes that are none.
struct None {};

/// What tells calls of one operator apart, as far as layouts go: attributes and specs as numbers.
using CallKey = tensors::Dims;
inline void append_key(CallKey&, const None&) {}

/// What the ranks hold of the operands.
class Locals {
 public:
  explicit Locals(std::span<const LocalTensor* const> locals) : locals_(locals) {}
  const LocalTensor& operator[](std::size_t i) const { return *locals_[i]; }
  std::size_t size() const { return locals_.size(); }

 private:
  std::span<const LocalTensor* const> locals_;
};

/// Where this rank's part lies in the whole; both are none for local tensors.
struct Site {
  std::span<const Spec> inputs;
  Spec output;
  /// The result's shape on this rank; of a local call, what the meta function says.
  const Shape& output_shape(const Shape& of_local) const {
    return output ? output.local_box().shape : of_local;
  }
};

/// Which operands a gradient needs again.
struct Saves {
  std::uint32_t inputs = 0;  ///< a bit for each
  bool output = false;
};
constexpr Saves saves_input(unsigned which) {
  return {1U << which, false};
}
constexpr Saves saves_inputs(unsigned a, unsigned b) {
  return {1U << a | 1U << b, false};
}
constexpr Saves saves_output() {
  return {0, true};
}

/// Whether a gradient that is not reduced yet may stay so on its way back.
enum class PartialGradient { reduced, passed_on };

/// @tparam A decides layouts, and is part of the cache's key (append_key); @tparam V mere numbers
template <typename A = None, typename V = None>
struct Op {
  std::string_view name;
  Meta (*meta)(Metas, const A&);           ///< shape and dtype of the result; throws Error
  void (*rules)(Rules&, Metas, const A&);  ///< along one mesh axis
  LocalTensor (*local)(Locals, const A&, const V&, const Site&);
  Tensors (*backward)(const Context<A, V>&) = nullptr;  ///< none: no gradient flows
  Saves saves = {};
  PartialGradient partial_gradient = PartialGradient::reduced;
};

}  // namespace dtrun::dtensor
