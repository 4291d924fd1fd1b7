#include <fmt/core.h>

#include "compare_kernel.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "require.h"
#include "strided_loop.h"

namespace dtrun::tensors {

using base::Error;
using base::ErrorCode;

bool equal(const Tensor& a, const Tensor& b) {
  require_cpu("equal", {a, b});
  if (a.dtype() != b.dtype()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("equal was given {} and {}", dtype_name(a.dtype()), dtype_name(b.dtype())), "",
        "to() one of them");
  }
  if (a.shape() != b.shape()) return false;
  std::uint8_t all_equal = 1;
  const LoopOperand operands[] = {
      {&all_equal, Strides(a.shape().size(), 0), 1}, LoopOperand::of(a), LoopOperand::of(b)};
  for_each_row(a.shape(), operands, all_equal_kernel(a.dtype()));
  return all_equal != 0;
}

}  // namespace dtrun::tensors
