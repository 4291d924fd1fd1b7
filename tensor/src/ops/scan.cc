// cumsum and cumprod: lines along one dim, a block at a time.
#include <algorithm>

#include "arithmetic.h"
#include "copy_kernel.h"
#include "cuda/reductions.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/reduction.h"
#include "kernels/sum_kernel.h"
#include "kernels/transpose_kernel.h"
#include "loops/dim_walk.h"
#include "loops/thread_pool.h"
#include "multiversion.h"
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

/// Lines of at most so many elements are not worth a conversion before and after.
constexpr std::int64_t kShortLine = 128;

/// kLines dense lines of f32 side by side.
template <typename Op, int kLines>
void scan_beside(const ScanLine* lines, std::int64_t length, double neutral) {
  const float* sources[kLines];
  float* targets[kLines];
  double running[kLines];
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line) {
    sources[line] = reinterpret_cast<const float*>(lines[line].source);
    targets[line] = reinterpret_cast<float*>(lines[line].target);
    running[line] = neutral;
  }
  for (std::int64_t i = 0; i < length; ++i) {
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line) {
      running[line] = Op::apply(running[line], static_cast<double>(sources[line][i]));
      targets[line][i] = static_cast<float>(running[line]);
    }
  }
}
template <typename Op>
void scan_short_lines(const Scan& scan, const ScanLine* lines, int count, double neutral) {
  constexpr int kBeside = 4;
  int line = 0;
  for (; line + kBeside <= count; line += kBeside)
    scan_beside<Op, kBeside>(lines + line, scan.length, neutral);
  for (; line < count; ++line) scan_beside<Op, 1>(lines + line, scan.length, neutral);
}

/// Such lines, one behind the other, are turned: then each element's neighbours are those of other
/// lines, and none waits for another.
constexpr int kTurnedLines = 64;
constexpr std::int64_t kTurnedColumns = 16;
static_assert(kTurnedColumns % kTurnedSquare == 0 && kTurnedLines % kTurnedSquare == 0);
constexpr int kLinesInRegisters = 16;

template <typename Op>
DTRUN_MULTIVERSION void scan_columns(float* columns, double* running, std::int64_t count) {
  for (int first = 0; first < kTurnedLines; first += kLinesInRegisters) {
    double own[kLinesInRegisters];
    for (int line = 0; line < kLinesInRegisters; ++line) own[line] = running[first + line];
    float* column = columns + first;
    for (std::int64_t i = 0; i < count; ++i, column += kTurnedLines) {
      for (int line = 0; line < kLinesInRegisters; ++line) {
        own[line] = Op::apply(own[line], static_cast<double>(column[line]));
        column[line] = static_cast<float>(own[line]);
      }
    }
    for (int line = 0; line < kLinesInRegisters; ++line) running[first + line] = own[line];
  }
}
/// kTurnedLines lines. @param length a multiple of kTurnedSquare
template <typename Op>
void scan_turned(float* target, const float* source, std::int64_t length, double neutral) {
  alignas(64) float columns[kTurnedColumns * kTurnedLines];
  double running[kTurnedLines];
  std::fill_n(running, kTurnedLines, neutral);
  for (std::int64_t first = 0; first < length; first += kTurnedColumns) {
    const std::int64_t count = std::min(kTurnedColumns, length - first);
    transpose_rows(columns, kTurnedLines, source + first, length, kTurnedLines, count,
                   kTurnedLines);
    scan_columns<Op>(columns, running, count);
    transpose_rows(target + first, length, columns, kTurnedLines, count, kTurnedLines, count);
  }
}

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

/// Where the lines begin.
class LineStarts {
 public:
  /// @param first of a line's elements, bytes behind its lowest place
  LineStarts(const LocalTensor& a, int dim, std::int64_t first)
      : data_(static_cast<char*>(a.data()) + first) {
    const auto size = static_cast<std::int64_t>(item_size(a.dtype()));
    for (int d = 0; d < a.dim(); ++d) {
      const auto place = static_cast<std::size_t>(d);
      if (d != dim) others_.add(a.shape()[place], a.strides()[place] * size);
    }
  }
  /// Whether each begins so many bytes behind the one before.
  bool are_apart_by(std::int64_t bytes) const {
    return others_.is_one_run() && others_.inner_step() == bytes;
  }
  char* operator[](std::int64_t line) const {
    return data_ + (others_.is_one_run() ? line * others_.inner_step() : others_.offset(line));
  }

 private:
  char* data_;
  DimWalk others_;
};

using ScanShort = void (*)(const Scan&, const ScanLine*, int count, double neutral);
/// Nullptr where the lines are longer, not dense or of other dtypes.
template <typename Op>
ScanShort scan_short(const Scan& scan, DType from, DType to) {
  const auto size = static_cast<std::int64_t>(item_size(to));
  if (from != to || scan.length > kShortLine || scan.source_step != size ||
      scan.target_step != size) {
    return nullptr;
  }
  return to == DType::f32 ? &scan_short_lines<Op> : nullptr;
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
  const ScanShort short_lines = scan_short<Op>(way, a.dtype(), result);
  const LineStarts sources(a, along, first_of(a)), targets(out, along, first_of(out));
  const std::int64_t line_bytes = length * static_cast<std::int64_t>(item_size(result));
  const bool turned = short_lines != nullptr && length % kTurnedSquare == 0 &&
                      sources.are_apart_by(line_bytes) && targets.are_apart_by(line_bytes);
  const ShapesOnly shapes_only = shapes_only_for(out.dtype());
  const std::int64_t lines = a.numel() / length;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / length);
  parallel_for(lines, (grain + kScanLines - 1) / kScanLines * kScanLines,
               [&](std::int64_t begin, std::int64_t end) {
                 std::int64_t i = begin;
                 for (; turned && i + kTurnedLines <= end; i += kTurnedLines) {
                   scan_turned<Op>(reinterpret_cast<float*>(targets[i]),
                                   reinterpret_cast<const float*>(sources[i]), length, neutral);
                 }
                 for (; i < end; i += kScanLines) {
                   const int count = static_cast<int>(std::min<std::int64_t>(kScanLines, end - i));
                   ScanLine group[kScanLines];
                   for (int line = 0; line < count; ++line) {
                     group[line] = {sources[i + line], targets[i + line]};
                   }
                   if (short_lines != nullptr) {
                     short_lines(way, group, count, neutral);
                   } else if (compute == DType::f64) {
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
