// sort and topk: positions along each line, ordered by what is there.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "cuda/index.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "element.h"
#include "loops/line.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {
namespace {

/// nan is the greatest.
template <typename C>
bool less(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) return a < b || (b != b && a == a);
  return a < b;
}

/// The first `count` positions of the ordered line. Of equals the earlier one comes first.
template <typename C>
void order(const std::vector<C>& values, SortOrder direction, std::size_t count,
           std::vector<std::int64_t>& positions) {
  std::iota(positions.begin(), positions.end(), 0);
  const auto before = [&](std::int64_t i, std::int64_t j) {
    const C a = values[static_cast<std::size_t>(i)], b = values[static_cast<std::size_t>(j)];
    if (less(a, b)) return direction == SortOrder::ascending;
    if (less(b, a)) return direction == SortOrder::descending;
    return i < j;
  };
  const auto middle = positions.begin() + static_cast<std::ptrdiff_t>(count);
  if (count == positions.size()) {
    std::sort(positions.begin(), positions.end(), before);
  } else {
    std::partial_sort(positions.begin(), middle, positions.end(), before);
  }
}

struct Lines {
  const LocalTensor& a;
  const Sorted& out;
  int dim;
  std::int64_t kept;
  SortOrder direction;
};

template <typename T>
void sort_line(const Lines& lines, std::int64_t line) {
  const auto d = static_cast<std::size_t>(lines.dim);
  const auto start = [&](const LocalTensor& tensor) {
    return line_offset(lines.a.shape(), tensor.strides(), lines.dim, line);
  };
  const T* const from = lines.a.data_as<const T>() + start(lines.a);
  std::vector<ComputeType<T>> values(static_cast<std::size_t>(lines.a.shape()[d]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = Element<T>::load(from[static_cast<std::int64_t>(i) * lines.a.strides()[d]]);
  }
  std::vector<std::int64_t> positions(values.size());
  order(values, lines.direction, static_cast<std::size_t>(lines.kept), positions);
  T* const to = lines.out.values.data_as<T>() + start(lines.out.values);
  std::int64_t* const numbers =
      lines.out.indices.data_as<std::int64_t>() + start(lines.out.indices);
  for (std::int64_t i = 0; i < lines.kept; ++i) {
    const std::int64_t position = positions[static_cast<std::size_t>(i)];
    to[i * lines.out.values.strides()[d]] = from[position * lines.a.strides()[d]];
    numbers[i * lines.out.indices.strides()[d]] = position;
  }
}

Sorted sort_lines(const LocalTensor& tensor, int dim, std::int64_t kept, SortOrder direction) {
  const LocalTensor a = tensor.dim() == 0 ? tensor.view({1}) : tensor;
  Shape shape = a.shape();
  shape[static_cast<std::size_t>(dim)] = kept;
  const Sorted out{empty(shape, {a.dtype(), a.device()}), empty(shape, {DType::i64, a.device()})};
  if (!a.device().is_cpu()) {
    cuda::sort_elements(out.values, out.indices, a, dim, direction);
  } else if (out.values.numel() != 0) {
    const std::int64_t length = a.size(dim);
    const Lines lines{a, out, dim, kept, direction};
    dispatch(a.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::Type;
      parallel_for(a.numel() / length, std::max<std::int64_t>(1, 2048 / length),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t line = begin; line < end; ++line) sort_line<T>(lines, line);
                   });
    });
  }
  if (tensor.dim() != 0) return out;
  return {out.values.view({}), out.indices.view({})};
}

int sorted_dim(const LocalTensor& a, int dim) {
  return normalize_dim(dim, std::max<std::size_t>(1, a.shape().size()));
}

}  // namespace

Sorted sort(const LocalTensor& a, int dim, SortOrder direction) {
  dim = sorted_dim(a, dim);
  return sort_lines(a, dim, a.dim() == 0 ? 1 : a.size(dim), direction);
}

Sorted topk(const LocalTensor& a, std::int64_t k, int dim, SortOrder direction) {
  dim = sorted_dim(a, dim);
  const std::int64_t size = a.dim() == 0 ? 1 : a.size(dim);
  if (k < 0 || k > size) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      fmt::format("topk of {} elements along dim {}", k, dim),
                      fmt::format("the dim has {}", size));
  }
  if (a.dim() == 0 && k == 0) {
    return {empty({}, {a.dtype(), a.device()}), empty({}, {DType::i64, a.device()})};
  }
  return sort_lines(a, dim, k, direction);
}

}  // namespace dtrun::tensors
