#pragma once

#include <iterator>

#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors {

inline constexpr DType kAllDTypes[] = {DType::f64, DType::f32,    DType::f16, DType::bf16,
                                       DType::i64, DType::i32,    DType::i16, DType::i8,
                                       DType::u8,  DType::boolean};
static_assert(std::size(kAllDTypes) == kDTypes);

}  // namespace dtrun::tensors
