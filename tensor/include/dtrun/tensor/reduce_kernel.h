// Element-wise combination of contiguous buffers, per dtype: what a collective reduces with.
// Pure functions of the bytes; thread-safe for disjoint targets.
#pragma once

#include <cstdint>
#include <string_view>

#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors {

enum class CombineOp { sum, product, min, max, band, bor, bxor };

std::string_view combine_op_name(CombineOp op);
/// band, bor and bxor are for integers and bool.
bool combine_supports(CombineOp op, DType dtype);

/// accumulator[i] = accumulator[i] op input[i]. Integers wrap; NaN wins in min and max. bool: sum
/// and max are "or", product and min are "and". The two may be the same buffer, but not overlap
/// otherwise. @throws Error kInvalidArgument unless combine_supports
void combine(CombineOp op, DType dtype, void* accumulator, const void* input, std::int64_t count);

/// output[i] = inputs[0][i] op inputs[1][i] op ..., in this order; f16 and bf16 in f32 throughout,
/// rounded once. The output may be one of the inputs, but not overlap any otherwise.
/// @param n at least 1
void combine_all(CombineOp op, DType dtype, void* output, const void* const* inputs, int n,
                 std::int64_t count);

/// (inputs[0][i] + inputs[1][i] + ...) / divisor, as combine_all and divide; f16 and bf16 in f32
/// throughout, also where their sum is none.
void average_all(DType dtype, void* output, const void* const* inputs, int n, std::int64_t count,
                 std::int64_t divisor);

/// f16 and bf16, of which a sum may be none.
bool is_half(DType dtype);
void widen(DType half, float* target, const void* source, std::int64_t count);
void narrow(DType half, void* target, const float* source, std::int64_t count);

/// data[i] /= divisor, for averages; integers truncate. @param divisor positive
/// @throws Error kInvalidArgument for bool
void divide(DType dtype, void* data, std::int64_t count, std::int64_t divisor);

}  // namespace dtrun::tensors
