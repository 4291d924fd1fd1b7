// Op: the definition of an operator: its result's shape and dtype, its sharding rules, the kernel
// for a rank's parts, and its gradient. Ops are constants; the address identifies the operator in
// caches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dispatch/call_key.h"
#include "dispatch/rules.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

using tensors::LocalTensor;
using tensors::Shape;

// Declared for gradients, which are defined in the room above.
class Tensor;
using Tensors = std::vector<Tensor>;
template <typename A, typename V>
class Context;

/// For operators without attributes.
struct None {};

inline void append_key(CallKey&, const None&) {}

/// This rank's parts of the operands.
class Locals {
 public:
  explicit Locals(std::span<const LocalTensor* const> locals) : locals_(locals) {}
  const LocalTensor& operator[](std::size_t i) const { return *locals_[i]; }
  std::size_t size() const { return locals_.size(); }

 private:
  std::span<const LocalTensor* const> locals_;
};

/// The position of this rank's part in the whole tensor; null for local tensors.
struct Site {
  std::span<const Spec> inputs;
  Spec output;
  /// The shape of the result on this rank; for a local call, the shape that meta returns.
  const Shape& output_shape(const Shape& of_local) const {
    return output ? output.local_box().shape : of_local;
  }
};

/// Which operands the gradient saves.
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

/// Whether a Partial gradient may pass through backward without being reduced.
enum class PartialGradient { reduced, passed_on };

/// What a call's layouts are chosen by.
enum class Weighed {
  forward,         ///< what it costs to bring the operands there
  there_and_back,  ///< also what it costs to bring gradients back, and the result into a tensor
  both_ways,       ///< and the result where a module around it wishes it
};

/// @tparam A attributes that affect layouts; part of the cache's key (append_key). @tparam V
/// attributes that do not
template <typename A = None, typename V = None>
struct Op {
  std::string_view name;
  Meta (*meta)(Metas, const A&);           ///< shape and dtype of the result; throws Error
  void (*rules)(Rules&, Metas, const A&);  ///< along one mesh axis
  LocalTensor (*local)(Locals, const A&, const V&, const Site&);
  Tensors (*backward)(const Context<A, V>&) = nullptr;  ///< none: no gradient flows
  Saves saves = {};
  PartialGradient partial_gradient = PartialGradient::reduced;
  Weighed weighed = Weighed::forward;
  /// The input that lists positions or classes: a kernel's PlaceError is of that.
  int list = -1;
};

}  // namespace dtrun::dtensor
