// Elements that change places along whole dims, and parts that become one number.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cuda/index.h"
#include "cuda/kernels.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

using cuda::Triangle;

/// Zero is all bits 0 in every dtype.
LocalTensor triangle(std::string_view op, const LocalTensor& a, std::int64_t diagonal,
                     Triangle kept) {
  if (a.dim() < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} of a tensor of shape {}", op, shape_to_string(a.shape())),
                "it takes matrices: two dims at least", "unsqueeze(0) for a matrix of one row");
  }
  const LocalTensor out = a.clone();
  const std::int64_t rows = a.size(-2), columns = a.size(-1);
  if (out.numel() == 0) return out;
  diagonal = std::clamp(diagonal, -rows, columns);  // no matrix is farther across
  if (!a.device().is_cpu()) {
    cuda::clear_beside(out, diagonal, kept);
    return out;
  }
  const ShapesOnly shapes_only = shapes_only_for(a.dtype());
  const std::size_t bytes = item_size(a.dtype());
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / columns);
  parallel_for(out.numel() / columns, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t after = line % rows + diagonal + (kept == Triangle::lower ? 1 : 0);
      const std::int64_t split = std::clamp<std::int64_t>(after, 0, columns);
      const std::int64_t first = kept == Triangle::lower ? split : 0;
      const std::int64_t last = kept == Triangle::lower ? columns : split;
      std::memset(
          static_cast<char*>(out.data()) + static_cast<std::size_t>(line * columns + first) * bytes,
          0, static_cast<std::size_t>(last - first) * bytes);
    }
  });
  return out;
}

LocalTensor roll_dim(const LocalTensor& a, std::int64_t shift, int dim) {
  const std::int64_t size = a.size(dim);
  if (size == 0) return a.clone();
  const std::int64_t forward = (shift % size + size) % size;
  return cat({a.narrow(dim, size - forward, forward), a.narrow(dim, 0, size - forward)}, dim);
}

}  // namespace

LocalTensor flip(const LocalTensor& a, const std::vector<int>& dims) {
  // A tensor without dims has one here, as in PyTorch.
  std::vector<bool> seen(std::max<std::size_t>(a.shape().size(), 1), false);
  for (const int dim : dims) {
    const auto d = static_cast<std::size_t>(normalize_dim(dim, seen.size()));
    if (seen[d]) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("flip of a tensor of shape {} was given dim {} twice",
                              shape_to_string(a.shape()), d),
                  "a dim is turned once", "each dim once; a negative one counts from the last");
    }
    seen[d] = true;
  }
  if (dims.empty() || a.dim() == 0) return a.clone();
  if (!a.device().is_cpu()) {
    const LocalTensor out = empty(a.shape(), {a.dtype(), a.device()});
    cuda::flip_elements(out, a, seen);
    return out;
  }
  LocalTensor flipped = a;
  for (std::size_t d = 0; d < seen.size(); ++d) {
    if (!seen[d]) continue;
    std::vector<std::int64_t> backwards(static_cast<std::size_t>(a.shape()[d]));
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    const auto count = static_cast<std::int64_t>(backwards.size());
    flipped =
        index_select(flipped, static_cast<int>(d), tensor_from(backwards, {count}, DType::i64));
  }
  return flipped;
}

LocalTensor roll(const LocalTensor& a, const std::vector<std::int64_t>& shifts,
                 const std::vector<int>& dims) {
  if (dims.empty() && shifts.size() == 1) {
    return roll_dim(a.reshape({-1}), shifts[0], 0).view(a.shape());
  }
  if (dims.size() != shifts.size() || dims.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("roll of a tensor of shape {} by {} shifts along {} dims",
                            shape_to_string(a.shape()), shifts.size(), dims.size()),
                "each dim has its shift", "a shift for each dim, or one shift and no dims");
  }
  LocalTensor rolled = a;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    rolled = roll_dim(rolled, shifts[i], normalize_dim(dims[i], a.shape().size()));
  }
  return rolled;
}

LocalTensor tril(const LocalTensor& a, std::int64_t diagonal) {
  return triangle("tril", a, diagonal, Triangle::lower);
}
LocalTensor triu(const LocalTensor& a, std::int64_t diagonal) {
  return triangle("triu", a, diagonal, Triangle::upper);
}

Shape padded_shape(const Shape& shape, const std::vector<std::int64_t>& pads) {
  if (pads.size() % 2 != 0 || pads.size() / 2 > shape.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("pad of a tensor of shape {} by {} numbers", shape_to_string(shape),
                            pads.size()),
                "it takes two for each dim that is padded",
                "before and after the last dim, then those of the dim before it");
  }
  Shape padded = shape;
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    std::int64_t& size = padded[shape.size() - 1 - i];
    const std::int64_t before = pads[2 * i], after = pads[2 * i + 1];
    if (before < -size || after < -size ||
        size + std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0) < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("pad of a tensor of shape {}: {} elements by {} and {}",
                              shape_to_string(shape), size, before, after),
                  "fewer than none are left", "crop less than the dim has");
    }
    if (__builtin_add_overflow(size, before, &size) || __builtin_add_overflow(size, after, &size)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("pad of a dim by {} and {}", before, after),
                  "it has more elements than 63 bits count", "smaller pads");
    }
  }
  return padded;
}

LocalTensor pad(const LocalTensor& a, const std::vector<std::int64_t>& pads, Scalar value) {
  const LocalTensor out = full(padded_shape(a.shape(), pads), value, {a.dtype(), a.device()});
  LocalTensor from = a, to = out;
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    const int dim = a.dim() - 1 - static_cast<int>(i);
    // Of the source's elements those that have a place in the result, counted there.
    const std::int64_t before = pads[2 * i];
    const std::int64_t first = std::max<std::int64_t>(0, before);
    const std::int64_t last = std::min(out.size(dim), before + a.size(dim));
    const std::int64_t count = std::max<std::int64_t>(0, last - first);
    if (count == 0) return out;
    from = from.narrow(dim, first - before, count);
    to = to.narrow(dim, first, count);
  }
  to.copy_(from);
  return out;
}

}  // namespace dtrun::tensors
