// cumsum and cumprod: lines along one dim, a block at a time.
#include <algorithm>

#include "arithmetic.h"
#include "copy_kernel.h"
#include "cuda/reductions.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
#include "kernels/sum_kernel.h"
#include "loops/line.h"
#include "loops/thread_pool.h"
#include "ops/map_call.h"

namespace dtrun::tensors {
namespace {

using cuda::ScanFrom;

constexpr std::int64_t kScanBlock = 256;
/// Handles this many lines at a time: within a line each addition waits for the one before it,
/// other lines fill the gaps.
constexpr int kScanLines = 8;

struct ScanLine {
  char* source;
  char* target;
};

/// What is the same for all lines.
struct Scan {
  std::int64_t source_step;  ///< bytes
  std::int64_t target_step;
  std::int64_t length;
  RowKernel load;
  RowKernel store;
};

template <typename Op, typename A>
void scan_lines(const Scan& scan, const ScanLine* lines, int count, A neutral) {
  A values[kScanLines][kScanBlock];
  A running[kScanLines];
  std::fill_n(running, kScanLines, neutral);
  for (std::int64_t first = 0; first < scan.length; first += kScanBlock) {
    const std::int64_t block = std::min(kScanBlock, scan.length - first);
    for (int line = 0; line < count; ++line) {
      char* const loaded[] = {reinterpret_cast<char*>(values[line]),
                              lines[line].source + first * scan.source_step};
      const std::int64_t steps[] = {sizeof(A), scan.source_step};
      scan.load(loaded, steps, block);
    }
    if (count == kScanLines) {
      for (std::int64_t i = 0; i < block; ++i) {
#pragma GCC unroll 8
        for (int line = 0; line < kScanLines; ++line) {
          values[line][i] = running[line] = Op::apply(running[line], values[line][i]);
        }
      }
    } else {
      for (int line = 0; line < count; ++line) {
        for (std::int64_t i = 0; i < block; ++i) {
          values[line][i] = running[line] = Op::apply(running[line], values[line][i]);
        }
      }
    }
    for (int line = 0; line < count; ++line) {
      char* const stored[] = {lines[line].target + first * scan.target_step,
                              reinterpret_cast<char*>(values[line])};
      const std::int64_t steps[] = {scan.target_step, sizeof(A)};
      scan.store(stored, steps, block);
    }
  }
}

/// In bytes.
std::int64_t line_offset_of(const LocalTensor& a, int dim, std::int64_t line) {
  return line_offset(a.shape(), a.strides(), dim, line) *
         static_cast<std::int64_t>(item_size(a.dtype()));
}

template <typename Op>
LocalTensor scan(const LocalTensor& a, int dim, int neutral, ScanFrom from) {
  const DType result = sum_dtype(a.dtype());
  const DType compute = is_floating_point(a.dtype()) ? DType::f64 : DType::i64;
  const int along = a.dim() == 0 ? normalize_dim(dim, 1) : normalize_dim(dim, a.shape().size());
  const LocalTensor out = empty(a.shape(), {result, a.device()});
  if (a.numel() == 0) return out;
  if (!a.device().is_cpu()) {
    constexpr bool kAdds = std::is_same_v<Op, Add>;
    cuda::scan_elements(out, a, along, kAdds ? cuda::ScanJoin::add : cuda::ScanJoin::multiply,
                        from);
    return out;
  }
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
  const Scan way{sign * step_of(a), sign * step_of(out), length, copy_kernel(compute, a.dtype()),
                 copy_kernel(result, compute)};
  const ShapesOnly shapes_only = shapes_only_for(out.dtype());
  const std::int64_t lines = a.numel() / length;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / length);
  parallel_for(lines, (grain + kScanLines - 1) / kScanLines * kScanLines,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; i += kScanLines) {
                   const int count = static_cast<int>(std::min<std::int64_t>(kScanLines, end - i));
                   ScanLine group[kScanLines];
                   for (int line = 0; line < count; ++line) {
                     group[line] = {static_cast<char*>(a.data()) +
                                        line_offset_of(a, along, i + line) + first_of(a),
                                    static_cast<char*>(out.data()) +
                                        line_offset_of(out, along, i + line) + first_of(out)};
                   }
                   if (compute == DType::f64) {
                     scan_lines<Op>(way, group, count, static_cast<double>(neutral));
                   } else {
                     scan_lines<Op>(way, group, count, static_cast<std::int64_t>(neutral));
                   }
                 }
               });
  return out;
}

}  // namespace

LocalTensor cumsum(const LocalTensor& a, int dim) {
  return scan<Add>(a, dim, 0, ScanFrom::first);
}
LocalTensor reverse_cumsum(const LocalTensor& a, int dim) {
  return scan<Add>(a, dim, 0, ScanFrom::last);
}
LocalTensor cumprod(const LocalTensor& a, int dim) {
  return scan<Multiply>(a, dim, 1, ScanFrom::first);
}

}  // namespace dtrun::tensors
