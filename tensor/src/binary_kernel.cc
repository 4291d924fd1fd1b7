#include "binary_kernel.h"

#include "arithmetic.h"
#include "dtrun/base/check.h"
#include "element.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

template <typename Op, typename T>
T apply(T a, T b) {
  return Element<T>::store(Op::apply(Element<T>::load(a), Element<T>::load(b)));
}

template <typename Op, typename T>
DTRUN_MULTIVERSION void run_both(T* out, const T* a, const T* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = apply<Op>(a[i], b[i]);
}

template <typename Op, typename T>
DTRUN_MULTIVERSION void run_right_repeated(T* out, const T* a, T b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = apply<Op>(a[i], b);
}

template <typename Op, typename T>
DTRUN_MULTIVERSION void run_left_repeated(T* out, T a, const T* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = apply<Op>(a, b[i]);
}

template <typename Op, typename T>
void binary_row(char* const* operands, const std::int64_t* strides, std::int64_t count) {
  constexpr std::int64_t kDense = sizeof(T);
  T* out = reinterpret_cast<T*>(operands[0]);
  const T* a = reinterpret_cast<const T*>(operands[1]);
  const T* b = reinterpret_cast<const T*>(operands[2]);
  if (strides[0] == kDense && strides[1] == kDense && strides[2] == kDense) {
    run_both<Op>(out, a, b, count);
  } else if (strides[0] == kDense && strides[1] == kDense && strides[2] == 0) {
    run_right_repeated<Op>(out, a, *b, count);
  } else if (strides[0] == kDense && strides[1] == 0 && strides[2] == kDense) {
    run_left_repeated<Op>(out, *a, b, count);
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      *out = apply<Op>(*a, *b);
      out += strides[0] / kDense;
      a += strides[1] / kDense;
      b += strides[2] / kDense;
    }
  }
}

template <typename T>
RowKernel kernel_of(BinaryOp op) {
  using Compute = ComputeType<T>;
  switch (op) {
    case BinaryOp::add:
      return &binary_row<Add, T>;
    case BinaryOp::mul:
      return &binary_row<Multiply, T>;
    case BinaryOp::sub:
      if constexpr (!std::is_same_v<Compute, bool>) return &binary_row<Subtract, T>;
      break;
    case BinaryOp::div:
      if constexpr (std::is_floating_point_v<Compute>) return &binary_row<Divide, T>;
      break;
  }
  return nullptr;
}

}  // namespace

RowKernel binary_kernel(BinaryOp op, DType dtype) {
  const RowKernel kernel =
      dispatch(dtype, [op](auto tag) { return kernel_of<typename decltype(tag)::Type>(op); });
  DT_CHECK(kernel != nullptr);
  return kernel;
}

}  // namespace dtrun::tensors
