#include "kernels/equality_kernel.h"

#include "element.h"

namespace dtrun::tensors {
namespace {

template <typename T>
void all_equal_row(char* const* operands, const std::int64_t* strides, std::int64_t count) {
  const char* a = operands[1];
  const char* b = operands[2];
  bool equal = true;
  for (std::int64_t i = 0; i < count; ++i) {
    equal &= Element<T>::load(*reinterpret_cast<const T*>(a)) ==
             Element<T>::load(*reinterpret_cast<const T*>(b));
    a += strides[1];
    b += strides[2];
  }
  // Rows on several threads may find a difference.
  if (!equal) __atomic_store_n(operands[0], char{0}, __ATOMIC_RELAXED);
}

}  // namespace

RowKernel all_equal_kernel(DType dtype) {
  return dispatch(
      dtype, [](auto tag) -> RowKernel { return &all_equal_row<typename decltype(tag)::Type>; });
}

}  // namespace dtrun::tensors
