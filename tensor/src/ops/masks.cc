// Where a mask is true, and the elements there.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/index.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

/// Waits for the device, because the shape of the result depends on the count.
LocalTensor true_positions_on_device(const LocalTensor& line) {
  const LocalTensor counts = cumsum(line, 0);
  const std::int64_t last = line.numel() - 1;
  const std::int64_t count = last < 0 ? 0 : counts.narrow(0, last, 1).to_vector_i64()[0];
  const LocalTensor out = empty({count}, {DType::i64, line.device()});
  cuda::place_true(out, line, counts);
  return out;
}

}  // namespace

LocalTensor true_positions(const LocalTensor& mask) {
  if (mask.dtype() != DType::boolean) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      fmt::format("masked_select with a {} mask", dtype_name(mask.dtype())),
                      "a mask is bool", "ne(mask, 0)");
  }
  const LocalTensor line = mask.contiguous();
  if (!line.device().is_cpu()) return true_positions_on_device(line.view({-1}));
  const bool* const is_true = line.data_as<const bool>();
  const std::int64_t count = std::count(is_true, is_true + line.numel(), true);
  const LocalTensor out = empty({count}, {DType::i64});
  std::int64_t* next = out.data_as<std::int64_t>();
  for (std::int64_t i = 0; i < line.numel(); ++i) {
    if (is_true[i]) *next++ = i;
  }
  return out;
}

LocalTensor masked_select(const LocalTensor& a, const LocalTensor& mask) {
  require_one_device("masked_select", a, mask);
  const Shape shape = broadcast_shapes(a.shape(), mask.shape());
  const LocalTensor positions = true_positions(mask.expand(shape));
  return index_select(a.expand(shape).reshape({-1}), 0, positions);
}

}  // namespace dtrun::tensors
