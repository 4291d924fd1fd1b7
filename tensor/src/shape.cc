#include "dtrun/tensor/shape.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::tensors {

using base::Error;
using base::ErrorCode;

namespace {

/// Of sizes whose product, from the left, leaves 63 bits, or with a negative one.
std::int64_t numel_of_unusual(const Shape& shape) {
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 0; })) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("shape {} has a negative size", shape_to_string(shape)),
                "a size counts elements", "sizes of 0 and more");
  }
  // A size of 0 makes the product 0, even where the other sizes overflow.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("shape {} has more elements than 63 bits count", shape_to_string(shape)),
              "the sizes are multiplied", "smaller sizes");
}

}  // namespace

std::int64_t numel(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) [[unlikely]]
      return numel_of_unusual(shape);
  }
  return count;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  // Unsigned, so that wrapping is defined; it happens only for tensors without elements or too many
  // for the caller.
  std::uint64_t step = 1;
  for (std::size_t d = strides.size(); d-- > 0;) {
    const std::int64_t size = std::exchange(strides[d], static_cast<std::int64_t>(step));
    step *= static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
  }
  return strides;
}

int normalize_dim(int dim, std::size_t rank) {
  const int dims = static_cast<int>(rank);
  if (dim < -dims || dim >= dims) {
    throw Error(ErrorCode::kInvalidArgument,
                dims == 0 ? fmt::format("dim {} of a tensor without dims", dim)
                          : fmt::format("dim {} is out of range [{}, {}]", dim, -dims, dims - 1),
                fmt::format("the tensor has {} dims", dims),
                dims == 0 ? "no dim, for it has none"
                          : fmt::format("a dim from {} to {}", -dims, dims - 1));
  }
  return dim < 0 ? dim + dims : dim;
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape result(rank);
  for (std::size_t from_end = 1; from_end <= rank; ++from_end) {
    const std::int64_t size_a = from_end <= a.size() ? a[a.size() - from_end] : 1;
    const std::int64_t size_b = from_end <= b.size() ? b[b.size() - from_end] : 1;
    if (size_a != size_b && size_a != 1 && size_b != 1) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("shapes {} and {} do not broadcast", shape_to_string(a), shape_to_string(b)),
          fmt::format("at dim {} one has {} and the other {}", rank - from_end, size_a, size_b),
          "sizes must be equal, or one of them 1");
    }
    result[rank - from_end] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

std::string shape_to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace dtrun::tensors
