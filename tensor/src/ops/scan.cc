// cumsum and cumprod: lines along one dim, a block at a time.
#include <algorithm>

#include "arithmetic.h"
#include "copy_kernel.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
#include "kernels/sum_kernel.h"
#include "loops/line.h"
#include "loops/thread_pool.h"
#include "ops/map_call.h"

namespace dtrun::tensors {
namespace {

enum class ScanFrom : std::uint8_t { first, last };

constexpr std::int64_t kScanBlock = 512;

struct ScanLine {
  char* source;
  char* target;
  std::int64_t source_step;  ///< bytes
  std::int64_t target_step;
  std::int64_t length;
  RowKernel load;
  RowKernel store;
};

template <typename Op, typename A>
void scan_line(const ScanLine& line, A running) {
  A values[kScanBlock];
  for (std::int64_t first = 0; first < line.length; first += kScanBlock) {
    const std::int64_t count = std::min(kScanBlock, line.length - first);
    char* const loaded[] = {reinterpret_cast<char*>(values),
                            line.source + first * line.source_step};
    const std::int64_t load_steps[] = {sizeof(A), line.source_step};
    line.load(loaded, load_steps, count);
    for (std::int64_t i = 0; i < count; ++i) values[i] = running = Op::apply(running, values[i]);
    char* const stored[] = {line.target + first * line.target_step,
                            reinterpret_cast<char*>(values)};
    const std::int64_t store_steps[] = {line.target_step, sizeof(A)};
    line.store(stored, store_steps, count);
  }
}

/// In bytes.
std::int64_t line_offset_of(const LocalTensor& a, int dim, std::int64_t line) {
  return line_offset(a.shape(), a.strides(), dim, line) *
         static_cast<std::int64_t>(item_size(a.dtype()));
}

template <typename Op>
LocalTensor scan(std::string_view name, const LocalTensor& a, int dim, int neutral, ScanFrom from) {
  require_host(name, a);
  const DType result = sum_dtype(a.dtype());
  const DType compute = is_floating_point(a.dtype()) ? DType::f64 : DType::i64;
  const int along = a.dim() == 0 ? normalize_dim(dim, 1) : normalize_dim(dim, a.shape().size());
  const LocalTensor out = empty(a.shape(), {result});
  if (a.numel() == 0) return out;
  const bool single = a.dim() == 0;
  const std::int64_t length = single ? 1 : a.size(along);
  const auto step_of = [&](const LocalTensor& tensor) {
    return single ? 0
                  : tensor.strides()[static_cast<std::size_t>(along)] *
                        static_cast<std::int64_t>(item_size(tensor.dtype()));
  };
  const std::int64_t sign = from == ScanFrom::first ? 1 : -1;
  const auto first_of = [&](const LocalTensor& tensor) {
    return from == ScanFrom::first ? 0 : (length - 1) * step_of(tensor);
  };
  const std::int64_t lines = a.numel() / length;
  parallel_for(
      lines, std::max<std::int64_t>(1, 16384 / length), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const ScanLine line{
              static_cast<char*>(a.data()) + line_offset_of(a, along, i) + first_of(a),
              static_cast<char*>(out.data()) + line_offset_of(out, along, i) + first_of(out),
              sign * step_of(a),
              sign * step_of(out),
              length,
              copy_kernel(compute, a.dtype()),
              copy_kernel(result, compute)};
          if (compute == DType::f64) {
            scan_line<Op>(line, static_cast<double>(neutral));
          } else {
            scan_line<Op>(line, static_cast<std::int64_t>(neutral));
          }
        }
      });
  return out;
}

}  // namespace

LocalTensor cumsum(const LocalTensor& a, int dim) {
  return scan<Add>("cumsum", a, dim, 0, ScanFrom::first);
}
LocalTensor reverse_cumsum(const LocalTensor& a, int dim) {
  return scan<Add>("reverse_cumsum", a, dim, 0, ScanFrom::last);
}
LocalTensor cumprod(const LocalTensor& a, int dim) {
  return scan<Multiply>("cumprod", a, dim, 1, ScanFrom::first);
}

}  // namespace dtrun::tensors
