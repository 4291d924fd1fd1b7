#include "arithmetic.h"
#include "cuda/for_each.h"
#include "cuda/kernels.h"
#include "dtrun/base/check.h"

namespace dtrun::tensors::cuda {
namespace {

/// One thread per element of the result. Integers are rare: simple before fast.
template <typename T>
struct MultiplyIntegers {
  T* result;
  const T* a;
  const T* b;
  std::int64_t columns;
  std::int64_t inner;
  std::int64_t a_row_step;
  std::int64_t a_column_step;
  std::int64_t b_row_step;
  std::int64_t b_column_step;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const T* left = a + i / columns * a_row_step;
    const T* right = b + i % columns * b_column_step;
    T sum{};
    for (std::int64_t k = 0; k < inner; ++k) {
      sum = Add::apply(sum, Multiply::apply(left[k * a_column_step], right[k * b_row_step]));
    }
    result[i] = sum;
  }
};

template <typename T>
void run(const LocalTensor& result, const LocalTensor& a, const LocalTensor& b) {
  const MultiplyIntegers<T> body{
      result.data_as<T>(), a.data_as<const T>(), b.data_as<const T>(), result.size(1), a.size(1),
      a.strides()[0],      a.strides()[1],       b.strides()[0],       b.strides()[1]};
  for_each(result.numel(), body, current_stream(result.device().index));
}

}  // namespace

void multiply_integers(const LocalTensor& result, const LocalTensor& a, const LocalTensor& b) {
  switch (result.dtype()) {
    case DType::i64:
      return run<std::int64_t>(result, a, b);
    case DType::i32:
      return run<std::int32_t>(result, a, b);
    case DType::i16:
      return run<std::int16_t>(result, a, b);
    case DType::i8:
      return run<std::int8_t>(result, a, b);
    default:
      DT_CHECK(result.dtype() == DType::u8);
      return run<std::uint8_t>(result, a, b);
  }
}

}  // namespace dtrun::tensors::cuda
