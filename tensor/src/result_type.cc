#include "dtrun/tensor/result_type.h"

#include <utility>

namespace dtrun::tensors {

DType result_type(TypedOperand a, TypedOperand b) {
  if (a.weight == b.weight) return promote_types(a.dtype, b.dtype);
  if (a.weight < b.weight) std::swap(a, b);
  if (is_floating_point(a.dtype)) return a.dtype;
  const bool higher_kind = a.dtype == DType::boolean || is_floating_point(b.dtype);
  return higher_kind ? promote_types(a.dtype, b.dtype) : a.dtype;
}

}  // namespace dtrun::tensors
