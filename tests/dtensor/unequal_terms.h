// Unequal terms: a tensor in any layout, where Partial has terms that all ranks have a part in, so
// that an operator which took each term for the whole would be found out.
#pragma once

#include <vector>

#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// The term that rank `index` of `size` has of `value`. All of them reduced give it back exactly
/// where it has few digits.
inline double term_of(double value, ReduceOp op, std::size_t element, int index, int size) {
  const bool is_last = index == size - 1;
  const bool is_its_owner = static_cast<int>(element % static_cast<std::size_t>(size)) == index;
  const auto bits = static_cast<std::int64_t>(value);
  switch (op) {
    case ReduceOp::sum:
      return is_last ? value - 3.0 * index : 3;
    case ReduceOp::avg:
      return is_last ? value * size - 3.0 * index : 3;
    case ReduceOp::product:
      return is_its_owner ? value : 1;
    case ReduceOp::min:
      return is_its_owner ? value : value + 1 + index;
    case ReduceOp::max:
      return is_its_owner ? value : value - 1 - index;
    case ReduceOp::band:
      return static_cast<double>(size == 1 ? bits : bits | std::int64_t{64} << index);
    case ReduceOp::bor:
      return static_cast<double>(is_its_owner ? bits : bits & index);
    case ReduceOp::bxor:
      return static_cast<double>(size == 1 || index > 1 ? (size == 1 ? bits : 0)
                                 : index == 0           ? bits ^ 5
                                                        : 5);
    case ReduceOp::premul_sum:
      break;
  }
  return value;
}

/// @param index the coordinate along an axis of `size` ranks
inline LocalTensor terms_of(const LocalTensor& whole, ReduceOp op, int index, int size) {
  std::vector<double> values = whole.to_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (whole.dtype() != DType::boolean) {
      values[i] = term_of(values[i], op, i, index, size);
    } else if (static_cast<int>(i % static_cast<std::size_t>(size)) != index) {
      const bool is_met = op == ReduceOp::band || op == ReduceOp::min || op == ReduceOp::product;
      values[i] = is_met ? 1 : 0;
    }
  }
  return tensors::tensor_from(values, whole.shape(), whole.dtype());
}

/// Without communication.
/// @param whole local
inline Tensor placed_in_terms(const Tensor& whole, const DeviceMesh& mesh,
                              const Placements& placements, const ShardOrder& order = {}) {
  const Spec spec = make_spec(mesh, placements, whole.shape(), whole.dtype(), order);
  LocalTensor local = cut(whole.plain_local(), spec.local_box()).contiguous();
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_partial()) continue;
    const int a = static_cast<int>(axis);
    local = terms_of(local, placements[axis].reduce_op(), mesh.coordinate()[axis],
                     static_cast<int>(mesh.size(a)));
  }
  return Tensor(spec, local);
}

}  // namespace dtrun::dtensor
