#include "dtrun/tensor/view_arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

[[noreturn]] void refuse_view(std::string what, std::string why = {}, std::string remedy = {}) {
  throw base::Error(base::ErrorCode::kInvalidArgument, std::move(what), std::move(why),
                    std::move(remedy));
}

}  // namespace

Shape inferred_shape(std::string_view operation, const Shape& from, Shape asked) {
  Shape shape = asked;
  const auto fail = [&](const char* why) {
    refuse_view(fmt::format("cannot {} shape {} as {}", operation, shape_to_string(from),
                            shape_to_string(asked)),
                why, fmt::format("sizes whose product is {}; one of them may be -1", numel(from)));
  };
  const std::int64_t elements = numel(from);
  const auto unknown = std::find(shape.begin(), shape.end(), -1);
  if (unknown != shape.end()) {
    *unknown = 1;
    if (std::find(shape.begin(), shape.end(), -1) != shape.end()) fail("more than one -1");
    const std::int64_t known = numel(shape);
    if (known == 0) fail("the size of -1 can be anything when another size is 0");
    if (elements % known != 0) fail("the sizes do not divide the number of elements");
    *unknown = elements / known;
  }
  if (numel(shape) != elements) fail("the numbers of elements differ");
  return shape;
}

Shape expanded_shape(const Shape& from, Shape asked) {
  const auto fail = [&] {
    refuse_view(
        fmt::format("cannot expand shape {} to {}", shape_to_string(from), shape_to_string(asked)),
        "only dims of size 1 expand, and new dims come first",
        "repeat() to copy elements, or unsqueeze() where a new dim is to come");
  };
  if (asked.size() < from.size()) fail();
  const std::size_t added = asked.size() - from.size();
  Shape target = asked;
  for (std::size_t d = 0; d < from.size(); ++d) {
    std::int64_t& size = target[added + d];
    if (size == -1) size = from[d];
    if (size != from[d] && from[d] != 1) fail();
  }
  return target;
}

SliceRange slice_range(const Shape& shape, int dim, std::int64_t start, std::int64_t end,
                       std::int64_t step) {
  if (step <= 0)
    refuse_view(fmt::format("slice by step {} of shape {}", step, shape_to_string(shape)),
                "a step goes forward", "flip() first to go backwards");
  const std::int64_t size = shape[static_cast<std::size_t>(dim)];
  const auto clamp = [size](std::int64_t index) {
    return std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size);
  };
  const std::int64_t first = clamp(start);
  return {first, std::max(first, clamp(end)), step};
}

SliceRange narrow_range(const Shape& shape, int dim, std::int64_t start, std::int64_t length) {
  const std::int64_t size = shape[static_cast<std::size_t>(dim)];
  const std::int64_t first = start < 0 ? start + size : start;
  if (first < 0 || length < 0 || first > size - length) {
    refuse_view(fmt::format("cannot take {} elements from {} on along dim {} of shape {}", length,
                            start, dim, shape_to_string(shape)),
                fmt::format("the dim has {}", size), "slice(), which takes what is there");
  }
  return {first, first + length, 1};
}

std::int64_t index_in(const Shape& shape, int dim, std::int64_t index) {
  const std::int64_t size = shape[static_cast<std::size_t>(dim)];
  if (index < -size || index >= size) {
    refuse_view(fmt::format("index {} is out of range for dim {} of shape {}", index, dim,
                            shape_to_string(shape)),
                fmt::format("the dim has {} elements", size),
                fmt::format("an index from {} to {}", -size, size - 1));
  }
  return index < 0 ? index + size : index;
}

std::vector<std::int64_t> split_sizes(std::int64_t length, std::int64_t split_size) {
  if (split_size < 0 || (split_size == 0 && length != 0)) {
    refuse_view(fmt::format("split of {} elements into pieces of {}", length, split_size),
                "a piece has an element at least", "a split size of 1 and more");
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t start = 0; start < length; start += split_size) {
    sizes.push_back(std::min(split_size, length - start));
  }
  if (sizes.empty()) sizes.push_back(0);
  return sizes;
}

void check_split_sizes(const Shape& shape, int dim, const std::vector<std::int64_t>& sizes) {
  const std::int64_t length = shape[static_cast<std::size_t>(dim)];
  std::int64_t total = 0;
  bool negative = false;
  for (const std::int64_t size : sizes) {
    total += size;
    negative = negative || size < 0;
  }
  if (!negative && total == length) return;
  refuse_view(fmt::format("split sizes {} do not add up to the {} elements of dim {}",
                          shape_to_string(sizes), length, dim) +
                  fmt::format(" of shape {}", shape_to_string(shape)),
              negative ? "a size is negative" : fmt::format("they add up to {}", total),
              "sizes whose sum is that of the dim");
}

std::vector<std::int64_t> chunk_sizes(std::int64_t length, int chunks) {
  if (chunks <= 0)
    refuse_view(fmt::format("chunk of {} elements into {} pieces", length, chunks),
                "there is one piece at least", "1 chunk and more");
  const std::int64_t full = (length + chunks - 1) / chunks;
  std::vector<std::int64_t> sizes;
  for (int piece = 0; piece < chunks; ++piece) {
    sizes.push_back(std::min(full, length));
    length -= sizes.back();
  }
  return sizes;
}

}  // namespace dtrun::tensors
