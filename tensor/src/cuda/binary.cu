#include <bit>

#include "arithmetic.h"
#include "cuda/for_each.h"
#include "cuda/kernels.h"
#include "cuda/strided_layout.h"
#include "dtrun/base/check.h"
#include "element.h"

namespace dtrun::tensors::cuda {
namespace {

/// One switch per element, the same for all threads: far fewer kernels to compile, and these are
/// bound by memory. What a dtype cannot do was refused before.
template <typename T>
DTRUN_BOTH T apply(BinaryOp op, T a, T b) {
  using Compute = ComputeType<T>;
  const Compute left = Element<T>::load(a);
  const Compute right = Element<T>::load(b);
  switch (op) {
    case BinaryOp::add:
      return Element<T>::store(Add::apply(left, right));
    case BinaryOp::mul:
      return Element<T>::store(Multiply::apply(left, right));
    case BinaryOp::sub:
      if constexpr (!std::is_same_v<Compute, bool>) {
        return Element<T>::store(Subtract::apply(left, right));
      }
      break;
    case BinaryOp::div:
      if constexpr (std::is_floating_point_v<Compute>) {
        return Element<T>::store(Divide::apply(left, right));
      }
      break;
  }
  return a;
}

/// An input that is a run of elements, or one element that repeats.
template <typename T>
struct FlatInput {
  const T* data;
  std::int64_t step;  ///< 1 or 0

  DTRUN_BOTH T at(std::int64_t i) const { return data[i * step]; }
  DTRUN_BOTH Pack<T> pack(std::int64_t first) const {
    if (step == 1) return *reinterpret_cast<const Pack<T>*>(data + first);
    Pack<T> all;
    for (int k = 0; k < Pack<T>::kSize; ++k) all.items[k] = data[0];
    return all;
  }
};

template <typename T>
struct BinaryRun {
  BinaryOp op;
  T* out;
  FlatInput<T> a;
  FlatInput<T> b;
  std::int64_t count;

  DTRUN_BOTH void operator()(std::int64_t pack) const {
    constexpr std::int64_t kSize = Pack<T>::kSize;
    const std::int64_t first = pack * kSize;
    if (first + kSize <= count) {
      const Pack<T> left = a.pack(first);
      const Pack<T> right = b.pack(first);
      Pack<T> result;
      for (int k = 0; k < kSize; ++k) result.items[k] = apply(op, left.items[k], right.items[k]);
      *reinterpret_cast<Pack<T>*>(out + first) = result;
    } else {
      for (std::int64_t i = first; i < count; ++i) out[i] = apply(op, a.at(i), b.at(i));
    }
  }
};

template <typename T>
struct BinaryStrided {
  StridedLayout<3> layout;
  BinaryOp op;
  T* out;
  const T* a;
  const T* b;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    out[offsets.of[0]] = apply(op, a[offsets.of[1]], b[offsets.of[2]]);
  }
};

template <typename T>
struct ClearIfDifferent {
  StridedLayout<2> layout;
  std::uint8_t* flag;
  const T* a;
  const T* b;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    const bool equal = Element<T>::load(a[offsets.of[0]]) == Element<T>::load(b[offsets.of[1]]);
    if (!equal) *flag = 0;  // whoever writes writes the same
  }
};

template <typename T>
void run_binary(BinaryOp op, const LocalTensor& out, const LocalTensor& a, const LocalTensor& b) {
  const auto layout = make_layout<3>(out.shape(), {&out.strides(), &a.strides(), &b.strides()});
  const Stream stream = current_stream(out.device().index);
  T* const to = out.data_as<T>();
  const FlatInput<T> left{a.data_as<T>(), layout.step(1)};
  const FlatInput<T> right{b.data_as<T>(), layout.step(2)};
  const auto fits = [](const FlatInput<T>& input) {
    return input.step == 0 || is_aligned(input.data);
  };
  const bool is_run = layout.rank == 1 && layout.is_flat() && layout.step(0) == 1;
  if (is_run && is_aligned(to) && fits(left) && fits(right)) {
    const std::int64_t packs = (layout.count + Pack<T>::kSize - 1) / Pack<T>::kSize;
    for_each(packs, BinaryRun<T>{op, to, left, right, layout.count}, stream);
  } else {
    for_each(layout.count, BinaryStrided<T>{layout, op, to, left.data, right.data}, stream);
  }
}

}  // namespace

void binary(BinaryOp op, const LocalTensor& out, const LocalTensor& a, const LocalTensor& b) {
  DT_CHECK(op != BinaryOp::div || is_floating_point(out.dtype()));
  DT_CHECK(op != BinaryOp::sub || out.dtype() != DType::boolean);
  dispatch(out.dtype(), [&](auto tag) { run_binary<typename decltype(tag)::Type>(op, out, a, b); });
}

void clear_if_different(const LocalTensor& flag, const LocalTensor& a, const LocalTensor& b) {
  const auto layout = make_layout<2>(a.shape(), {&a.strides(), &b.strides()});
  dispatch(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for_each(
        layout.count,
        ClearIfDifferent<T>{layout, flag.data_as<std::uint8_t>(), a.data_as<T>(), b.data_as<T>()},
        current_stream(a.device().index));
  });
}

}  // namespace dtrun::tensors::cuda
