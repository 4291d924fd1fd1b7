#include "dtrun/tensor/reduce_kernel.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "arithmetic.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "element.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

/// A block of accumulators of any type stays in the first-level cache.
constexpr std::int64_t kBlock = 1024;

/// output may be a or b. A is T, or float where T is a half type.
template <typename Op, typename A, typename T>
DTRUN_MULTIVERSION void combine_pair(A* output, const A* a, const T* b, std::int64_t count) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    output[i] = Element<A>::store(Op::apply(Element<A>::load(a[i]), Element<T>::load(b[i])));
  }
}

template <typename To, typename From>
DTRUN_MULTIVERSION void convert(To* target, const From* source, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = convert_element<To>(source[i]);
}

template <typename Op, typename T>
void combine_elements(void* accumulator, const void* input, std::int64_t count) {
  T* const to = static_cast<T*>(accumulator);
  combine_pair<Op>(to, to, static_cast<const T*>(input), count);
}

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// Of a block: half types in float, and rounded once, not after each input.
template <typename Op, typename T>
void combine_halves(T* output, const void* const* inputs, int n, std::int64_t start,
                    std::int64_t count) {
  float block[kBlock];
  convert(block, static_cast<const T*>(inputs[0]) + start, count);
  for (int k = 1; k < n; ++k) {
    combine_pair<Op>(block, block, static_cast<const T*>(inputs[k]) + start, count);
  }
  convert(output + start, block, count);
}

/// The same of a type that is its own accumulator.
template <typename Op, typename T>
void combine_block(T* output, const void* const* inputs, int n, std::int64_t start,
                   std::int64_t count) {
  const auto input = [&](int k) { return static_cast<const T*>(inputs[k]) + start; };
  T block[kBlock];
  combine_pair<Op>(block, input(0), input(1), count);
  for (int k = 2; k < n - 1; ++k) combine_pair<Op>(block, block, input(k), count);
  combine_pair<Op>(output + start, block, input(n - 1), count);
}

template <typename Op, typename T>
void combine_all_elements(void* output, const void* const* inputs, int n, std::int64_t count) {
  T* const to = static_cast<T*>(output);
  if (n == 1) {
    std::memmove(to, inputs[0], static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  if (n == 2)
    return combine_pair<Op>(to, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]),
                            count);
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const std::int64_t length = std::min(kBlock, count - start);
    if constexpr (kIsHalf<T>) {
      combine_halves<Op>(to, inputs, n, start, length);
    } else {
      combine_block<Op>(to, inputs, n, start, length);
    }
  }
}

struct Kernels {
  void (*combine)(void*, const void*, std::int64_t);
  void (*combine_all)(void*, const void* const*, int, std::int64_t);
};

template <typename Op>
constexpr bool kIsBitwise =
    std::is_same_v<Op, BitAnd> || std::is_same_v<Op, BitOr> || std::is_same_v<Op, BitXor>;

// Bits know no elements.
template <typename Op, std::int64_t kSize>
void combine_bytes(void* accumulator, const void* input, std::int64_t count) {
  combine_elements<Op, std::uint8_t>(accumulator, input, count * kSize);
}
template <typename Op, std::int64_t kSize>
void combine_all_bytes(void* output, const void* const* inputs, int n, std::int64_t count) {
  combine_all_elements<Op, std::uint8_t>(output, inputs, n, count * kSize);
}

template <typename Op>
Kernels kernels_for(DType dtype) {
  return dispatch(dtype, [](auto tag) -> Kernels {
    using T = typename decltype(tag)::Type;
    if constexpr (kIsBitwise<Op> && std::is_floating_point_v<ComputeType<T>>) {
      return {};
    } else if constexpr (kIsBitwise<Op> && !std::is_same_v<T, Boolean>) {
      return {&combine_bytes<Op, sizeof(T)>, &combine_all_bytes<Op, sizeof(T)>};
    } else {
      return {&combine_elements<Op, T>, &combine_all_elements<Op, T>};
    }
  });
}

Kernels kernels_for(CombineOp op, DType dtype) {
  if (!combine_supports(op, dtype)) {
    throw base::Error(
        base::ErrorCode::kInvalidArgument,
        fmt::format("cannot reduce {} elements with {}", dtype_name(dtype), combine_op_name(op)),
        "bitwise operations are for integers and bool", "sum, min or max, or integers");
  }
  switch (op) {
    case CombineOp::sum:
      return kernels_for<Add>(dtype);
    case CombineOp::product:
      return kernels_for<Multiply>(dtype);
    case CombineOp::min:
      return kernels_for<Min>(dtype);
    case CombineOp::max:
      return kernels_for<Max>(dtype);
    case CombineOp::band:
      return kernels_for<BitAnd>(dtype);
    case CombineOp::bor:
      return kernels_for<BitOr>(dtype);
    case CombineOp::bxor:
      break;
  }
  return kernels_for<BitXor>(dtype);
}

template <typename T>
DTRUN_MULTIVERSION void divide_elements(T* data, std::int64_t count, std::int64_t divisor) {
  using Compute = ComputeType<T>;
  if constexpr (std::is_floating_point_v<Compute>) {
    const Compute by = static_cast<Compute>(divisor);
    for (std::int64_t i = 0; i < count; ++i) {
      data[i] = Element<T>::store(Element<T>::load(data[i]) / by);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      // Towards zero, on every backend but nccl (docs/gpu.md).
      data[i] = static_cast<T>(static_cast<std::int64_t>(data[i]) / divisor);
    }
  }
}

}  // namespace

std::string_view combine_op_name(CombineOp op) {
  switch (op) {
    case CombineOp::sum:
      return "sum";
    case CombineOp::product:
      return "product";
    case CombineOp::min:
      return "min";
    case CombineOp::max:
      return "max";
    case CombineOp::band:
      return "band";
    case CombineOp::bor:
      return "bor";
    case CombineOp::bxor:
      return "bxor";
  }
  return "unknown";
}

bool combine_supports(CombineOp op, DType dtype) {
  const bool on_bits = op == CombineOp::band || op == CombineOp::bor || op == CombineOp::bxor;
  return !on_bits || !is_floating_point(dtype);
}

void combine(CombineOp op, DType dtype, void* accumulator, const void* input, std::int64_t count) {
  kernels_for(op, dtype).combine(accumulator, input, count);
}

void combine_all(CombineOp op, DType dtype, void* output, const void* const* inputs, int n,
                 std::int64_t count) {
  DT_CHECK(n >= 1);
  kernels_for(op, dtype).combine_all(output, inputs, n, count);
}

void divide(DType dtype, void* data, std::int64_t count, std::int64_t divisor) {
  DT_CHECK(divisor > 0);
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_same_v<T, Boolean>) {
      throw base::Error(base::ErrorCode::kInvalidArgument, "cannot average bool elements", "",
                        "max for 'any', min for 'all'");
    } else {
      divide_elements(static_cast<T*>(data), count, divisor);
    }
  });
}

bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

void widen(DType half, float* target, const void* source, std::int64_t count) {
  dispatch(half, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    convert(target, static_cast<const T*>(source), count);
  });
}

void narrow(DType half, void* target, const float* source, std::int64_t count) {
  dispatch(half, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    convert(static_cast<T*>(target), source, count);
  });
}

void average_all(DType dtype, void* output, const void* const* inputs, int n, std::int64_t count,
                 std::int64_t divisor) {
  if (!is_half(dtype)) {
    combine_all(CombineOp::sum, dtype, output, inputs, n, count);
    return divide(dtype, output, count, divisor);
  }
  // The mean of halves is rounded once: their sum, rounded to a half before the division, could be
  // infinite.
  float sums[kBlock];
  float terms[kBlock];
  const std::size_t bytes = item_size(dtype);
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const std::int64_t length = std::min(kBlock, count - start);
    const std::size_t offset = static_cast<std::size_t>(start) * bytes;
    widen(dtype, sums, static_cast<const char*>(inputs[0]) + offset, length);
    for (int k = 1; k < n; ++k) {
      widen(dtype, terms, static_cast<const char*>(inputs[k]) + offset, length);
      combine_pair<Add>(sums, sums, terms, length);
    }
    divide_elements(sums, length, divisor);
    narrow(dtype, static_cast<char*>(output) + offset, sums, length);
  }
}

}  // namespace dtrun::tensors
