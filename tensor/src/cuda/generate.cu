#include "cuda/for_each.h"
#include "cuda/kernels.h"
#include "dtrun/base/check.h"

namespace dtrun::tensors::cuda {
namespace {

template <typename T>
struct FillSequence {
  T* target;
  double start;
  double step;
  std::int64_t first;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    if constexpr (std::is_integral_v<T>) {
      target[i] = static_cast<T>(start) + (first + i) * static_cast<T>(step);
    } else {
      target[i] = start + static_cast<T>(first + i) * step;
    }
  }
};

struct FillLine {
  double* target;
  Line line;
  std::int64_t first;

  DTRUN_BOTH void operator()(std::int64_t i) const { target[i] = line.at(first + i); }
};

/// Unsigned, of the elements' size.
template <typename Bits>
struct ClearBeside {
  Bits* elements;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t diagonal;
  bool keeps_lower;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const std::int64_t distance = i % columns - i / columns % rows;
    const bool kept = keeps_lower ? distance <= diagonal : distance >= diagonal;
    if (!kept) elements[i] = 0;
  }
};

template <typename Bits>
void run_clear_beside(const LocalTensor& matrices, std::int64_t diagonal, Triangle kept) {
  for_each(matrices.numel(),
           ClearBeside<Bits>{matrices.data_as<Bits>(), matrices.size(-2), matrices.size(-1),
                             diagonal, kept == Triangle::lower},
           current_stream(matrices.device().index));
}

}  // namespace

void fill_line(const LocalTensor& target, const Line& line, std::int64_t first) {
  DT_CHECK(target.dtype() == DType::f64);
  for_each(target.numel(), FillLine{target.data_as<double>(), line, first},
           current_stream(target.device().index));
}

void clear_beside(const LocalTensor& matrices, std::int64_t diagonal, Triangle kept) {
  switch (item_size(matrices.dtype())) {
    case 1:
      return run_clear_beside<std::uint8_t>(matrices, diagonal, kept);
    case 2:
      return run_clear_beside<std::uint16_t>(matrices, diagonal, kept);
    case 4:
      return run_clear_beside<std::uint32_t>(matrices, diagonal, kept);
    default:
      return run_clear_beside<std::uint64_t>(matrices, diagonal, kept);
  }
}

void fill_sequence(const LocalTensor& target, double start, double step, std::int64_t first) {
  const Stream stream = current_stream(target.device().index);
  if (target.dtype() == DType::i64) {
    for_each(target.numel(),
             FillSequence<std::int64_t>{target.data_as<std::int64_t>(), start, step, first}, stream);
  } else {
    DT_CHECK(target.dtype() == DType::f64);
    for_each(target.numel(), FillSequence<double>{target.data_as<double>(), start, step, first}, stream);
  }
}

}  // namespace dtrun::tensors::cuda
