#include <bit>

#include "arithmetic.h"
#include "cuda/for_each.h"
#include "cuda/kernels.h"
#include "dtrun/base/check.h"
#include "element.h"

namespace dtrun::tensors::cuda {
namespace {

template <typename T>
DTRUN_BOTH T apply(CombineOp op, T a, T b) {
  using Compute = ComputeType<T>;
  const Compute left = Element<T>::load(a);
  const Compute right = Element<T>::load(b);
  switch (op) {
    case CombineOp::sum:
      return Element<T>::store(Add::apply(left, right));
    case CombineOp::product:
      return Element<T>::store(Multiply::apply(left, right));
    case CombineOp::min:
      return Element<T>::store(Min::apply(left, right));
    case CombineOp::max:
      return Element<T>::store(Max::apply(left, right));
    default:
      break;
  }
  if constexpr (!std::is_floating_point_v<Compute>) {
    if (op == CombineOp::band) return Element<T>::store(BitAnd::apply(left, right));
    if (op == CombineOp::bor) return Element<T>::store(BitOr::apply(left, right));
    return Element<T>::store(BitXor::apply(left, right));
  }
  return a;
}

template <typename T>
struct Combine {
  CombineOp op;
  T* accumulator;
  const T* input;
  std::int64_t count;
  bool in_packs;

  DTRUN_BOTH void operator()(std::int64_t pack) const {
    constexpr std::int64_t kSize = Pack<T>::kSize;
    const std::int64_t first = pack * kSize;
    if (in_packs && first + kSize <= count) {
      Pack<T>* const to = reinterpret_cast<Pack<T>*>(accumulator + first);
      Pack<T> sums = *to;
      const Pack<T> more = *reinterpret_cast<const Pack<T>*>(input + first);
      for (int k = 0; k < kSize; ++k) sums.items[k] = apply(op, sums.items[k], more.items[k]);
      *to = sums;
    } else {
      for (std::int64_t i = first; i < first + kSize && i < count; ++i) {
        accumulator[i] = apply(op, accumulator[i], input[i]);
      }
    }
  }
};

template <typename T>
struct DivideBy {
  T* data;
  std::int64_t divisor;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    using Compute = ComputeType<T>;
    if constexpr (std::is_floating_point_v<Compute>) {
      data[i] = Element<T>::store(Element<T>::load(data[i]) / static_cast<Compute>(divisor));
    } else {
      data[i] = static_cast<T>(static_cast<std::int64_t>(data[i]) / divisor);
    }
  }
};

}  // namespace

void enqueue_combine(CombineOp op, DType dtype, void* accumulator, const void* input,
                     std::int64_t count, const Stream& stream) {
  DT_CHECK(combine_supports(op, dtype));
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const Combine<T> body{op, static_cast<T*>(accumulator), static_cast<const T*>(input), count,
                          is_aligned(accumulator) && is_aligned(input)};
    for_each((count + Pack<T>::kSize - 1) / Pack<T>::kSize, body, stream);
  });
}

void enqueue_divide(DType dtype, void* data, std::int64_t count, std::int64_t divisor,
                    const Stream& stream) {
  DT_CHECK(divisor > 0 && dtype != DType::boolean);
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (!std::is_same_v<T, Boolean>) {
      for_each(count, DivideBy<T>{static_cast<T*>(data), divisor}, stream);
    }
  });
}

}  // namespace dtrun::tensors::cuda
