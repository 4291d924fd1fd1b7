// sort and topk: positions along each line, ordered by what is there.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/index.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "element.h"
#include "loops/line.h"
#include "loops/thread_pool.h"
#include "ops/radix_order.h"

namespace dtrun::tensors {
namespace {

struct Lines {
  const LocalTensor& a;
  const Sorted& out;
  int dim;
  std::int64_t kept;
  SortOrder direction;
};

template <typename T, typename Key>
void sort_line(const Lines& lines, std::int64_t line, RadixOrder<Key>& order) {
  const auto d = static_cast<std::size_t>(lines.dim);
  const auto start = [&](const LocalTensor& tensor) {
    return line_offset(lines.a.shape(), tensor.strides(), lines.dim, line);
  };
  const T* const from = lines.a.data_as<const T>() + start(lines.a);
  const std::int64_t step = lines.a.strides()[d];
  // Equals keep their order in both directions.
  const Key turned = lines.direction == SortOrder::descending ? ~Key{0} : Key{0};
  const auto key_of = [&](std::size_t i) {
    const T element = from[static_cast<std::int64_t>(i) * step];
    return static_cast<Key>(order_key(Element<T>::load(element)) ^ turned);
  };
  T* const to = lines.out.values.data_as<T>() + start(lines.out.values);
  std::int64_t* const numbers =
      lines.out.indices.data_as<std::int64_t>() + start(lines.out.indices);
  const std::int64_t to_step = lines.out.values.strides()[d];
  const std::int64_t number_step = lines.out.indices.strides()[d];
  std::int64_t i = 0;
  const auto length = static_cast<std::size_t>(lines.a.shape()[d]);
  for (const auto& entry : order.first(static_cast<std::size_t>(lines.kept), length, key_of)) {
    const auto position = static_cast<std::int64_t>(entry.position);
    to[i * to_step] = from[position * step];
    numbers[i * number_step] = position;
    ++i;
  }
}

/// Key: of the elements' own width, or as wide as a position.
template <typename T, typename Key>
void sort_all(const Lines& lines, std::int64_t length) {
  const ShapesOnly shapes_only = shapes_only_for(DType::i64);
  parallel_for(lines.a.numel() / length, std::max<std::int64_t>(1, 2048 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 RadixOrder<Key> order;
                 for (std::int64_t line = begin; line < end; ++line)
                   sort_line<T, Key>(lines, line, order);
               });
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
      using Key = decltype(order_key(ComputeType<T>{}));
      if (length > std::numeric_limits<std::uint32_t>::max()) {
        sort_all<T, std::uint64_t>(lines, length);
      } else {
        sort_all<T, Key>(lines, length);
      }
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
                      fmt::format("the dim has {}", size), fmt::format("k from 0 to {}", size));
  }
  // No shape says that none of a tensor without dims is wanted: it is the element, as in PyTorch.
  return sort_lines(a, dim, a.dim() == 0 ? 1 : k, direction);
}

}  // namespace dtrun::tensors
