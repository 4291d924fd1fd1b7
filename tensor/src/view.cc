// Views share the elements; cat and stack copy.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

[[noreturn]] void invalid(std::string what, std::string why = {}, std::string remedy = {}) {
  throw Error(ErrorCode::kInvalidArgument, std::move(what), std::move(why), std::move(remedy));
}

std::size_t index_of(int dim, const LocalTensor& tensor) {
  return static_cast<std::size_t>(normalize_dim(dim, tensor.shape().size()));
}

/// Replaces a -1 by what the other sizes leave.
Shape infer_shape(Shape shape, const LocalTensor& tensor) {
  const Shape asked = shape;
  const auto fail = [&](const char* why) {
    invalid(fmt::format("cannot view shape {} as {}", shape_to_string(tensor.shape()),
                        shape_to_string(asked)),
            why);
  };
  const auto unknown = std::find(shape.begin(), shape.end(), -1);
  if (unknown != shape.end()) {
    *unknown = 1;
    if (std::find(shape.begin(), shape.end(), -1) != shape.end()) fail("more than one -1");
    const std::int64_t known = numel(shape);
    if (known == 0) fail("the size of -1 can be anything when another size is 0");
    if (tensor.numel() % known != 0) fail("the sizes do not divide the number of elements");
    *unknown = tensor.numel() / known;
  }
  if (numel(shape) != tensor.numel()) fail("the numbers of elements differ");
  return shape;
}

/// Strides that give `tensor`'s elements the new shape in place, where there are any.
std::optional<Strides> view_strides(const LocalTensor& tensor, const Shape& shape) {
  if (tensor.numel() == 0 || tensor.is_contiguous()) return contiguous_strides(shape);
  // Runs of old dims that lie one after the other in memory; each new dim must fit inside one.
  Strides strides(shape.size());
  std::size_t next = shape.size();
  std::int64_t run_size = 1;
  std::int64_t run_step = 1;
  const Shape& old = tensor.shape();
  for (std::size_t d = old.size(); d-- > 0;) {
    if (run_size == 1) run_step = tensor.strides()[d];
    run_size *= old[d];
    std::size_t outer = d;
    while (outer > 0 && old[outer - 1] == 1) --outer;
    if (outer > 0 && run_size != 1 && tensor.strides()[outer - 1] == run_size * run_step) continue;
    std::int64_t filled = 1;
    while (next > 0 && (filled < run_size || shape[next - 1] == 1)) {
      --next;
      strides[next] = filled * run_step;
      filled *= shape[next];
    }
    if (filled != run_size) return std::nullopt;
    run_size = 1;
  }
  return strides;
}

}  // namespace

LocalTensor LocalTensor::view(Shape shape) const {
  Shape target = infer_shape(std::move(shape), *this);
  std::optional<Strides> strides = view_strides(*this, target);
  if (!strides) {
    invalid(fmt::format("cannot view shape {} as {}", shape_to_string(this->shape()),
                        shape_to_string(target)),
            fmt::format("its strides {} do not allow it without a copy",
                        shape_to_string(this->strides())),
            "reshape(), which copies where it must");
  }
  return LocalTensor(storage(), dtype(), std::move(target), std::move(*strides), offset());
}

LocalTensor LocalTensor::reshape(Shape shape) const {
  Shape target = infer_shape(std::move(shape), *this);
  std::optional<Strides> strides = view_strides(*this, target);
  if (strides)
    return LocalTensor(storage(), dtype(), std::move(target), std::move(*strides), offset());
  return clone().view(std::move(target));
}

LocalTensor LocalTensor::slice(int dim, std::int64_t start, std::int64_t end,
                               std::int64_t step) const {
  const std::size_t d = index_of(dim, *this);
  if (step <= 0) invalid(fmt::format("slice step {} is not positive", step));
  const std::int64_t size = this->shape()[d];
  const auto clamp = [size](std::int64_t index) {
    return std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size);
  };
  const std::int64_t first = clamp(start);
  const std::int64_t length = std::max<std::int64_t>(clamp(end) - first, 0);
  Shape shape = this->shape();
  Strides strides = this->strides();
  shape[d] = length / step + (length % step != 0 ? 1 : 0);
  strides[d] *= shape[d] > 1 ? step : 1;
  return LocalTensor(storage(), dtype(), std::move(shape), std::move(strides),
                     offset() + first * this->strides()[d]);
}

LocalTensor LocalTensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  const std::size_t d = index_of(dim, *this);
  const std::int64_t first = start < 0 ? start + this->shape()[d] : start;
  if (first < 0 || length < 0 || first > this->shape()[d] - length) {
    invalid(fmt::format("cannot take {} elements from {} on along dim {}", length, start, d),
            fmt::format("the dim has {}", this->shape()[d]));
  }
  return slice(static_cast<int>(d), first, first + length);
}

LocalTensor LocalTensor::select(int dim, std::int64_t index) const {
  const std::size_t d = index_of(dim, *this);
  if (index < -this->shape()[d] || index >= this->shape()[d]) {
    invalid(fmt::format("index {} is out of range for dim {}", index, d),
            fmt::format("the dim has {} elements", this->shape()[d]));
  }
  const std::int64_t position = index < 0 ? index + this->shape()[d] : index;
  Shape shape = this->shape();
  Strides strides = this->strides();
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(d));
  return LocalTensor(storage(), dtype(), std::move(shape), std::move(strides),
                     offset() + position * this->strides()[d]);
}

LocalTensor LocalTensor::transpose(int dim0, int dim1) const {
  if (this->shape().empty() && (dim0 == 0 || dim0 == -1) && (dim1 == 0 || dim1 == -1)) return *this;
  const std::size_t a = index_of(dim0, *this);
  const std::size_t b = index_of(dim1, *this);
  Shape shape = this->shape();
  Strides strides = this->strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return LocalTensor(storage(), dtype(), std::move(shape), std::move(strides), offset());
}

LocalTensor LocalTensor::permute(const std::vector<int>& dims) const {
  if (dims.size() != this->shape().size()) {
    invalid(fmt::format("permute was given {} dims for shape {}", dims.size(),
                        shape_to_string(this->shape())));
  }
  Shape shape;
  Strides strides;
  std::vector<bool> seen(dims.size(), false);
  for (const int dim : dims) {
    const std::size_t d = index_of(dim, *this);
    if (seen[d]) invalid(fmt::format("permute was given dim {} twice", d));
    seen[d] = true;
    shape.push_back(this->shape()[d]);
    strides.push_back(this->strides()[d]);
  }
  return LocalTensor(storage(), dtype(), std::move(shape), std::move(strides), offset());
}

LocalTensor LocalTensor::unsqueeze(int dim) const {
  const std::size_t d = static_cast<std::size_t>(normalize_dim(dim, this->shape().size() + 1));
  Shape shape = this->shape();
  Strides strides = this->strides();
  const std::int64_t step = d < this->shape().size() ? this->shape()[d] * this->strides()[d] : 1;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d), 1);
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(d), step);
  return LocalTensor(storage(), dtype(), std::move(shape), std::move(strides), offset());
}

LocalTensor LocalTensor::squeeze(int dim) const {
  if (this->shape().empty() && (dim == 0 || dim == -1)) return *this;
  const std::size_t d = index_of(dim, *this);
  return this->shape()[d] == 1 ? select(static_cast<int>(d), 0) : *this;
}

LocalTensor LocalTensor::expand(const Shape& shape) const {
  const auto fail = [&] {
    invalid(fmt::format("cannot expand shape {} to {}", shape_to_string(this->shape()),
                        shape_to_string(shape)),
            "", "only dims of size 1 expand, and new dims come first");
  };
  if (shape.size() < this->shape().size()) fail();
  const std::size_t added = shape.size() - this->shape().size();
  Shape target = shape;
  Strides strides(shape.size(), 0);
  for (std::size_t d = 0; d < this->shape().size(); ++d) {
    std::int64_t& size = target[added + d];
    if (size == -1) size = this->shape()[d];
    if (size != this->shape()[d] && this->shape()[d] != 1) fail();
    if (size == this->shape()[d]) strides[added + d] = this->strides()[d];
  }
  return LocalTensor(storage(), dtype(), std::move(target), std::move(strides), offset());
}

LocalTensor cat(const std::vector<LocalTensor>& tensors, int dim) {
  if (tensors.empty()) invalid("cat was given no tensors");
  // As in PyTorch, an empty 1-D tensor joins anything.
  const auto is_nothing = [](const LocalTensor& tensor) { return tensor.shape() == Shape{0}; };
  const auto found = std::find_if_not(tensors.begin(), tensors.end(), is_nothing);
  const LocalTensor& model = found == tensors.end() ? tensors.front() : *found;
  if (model.dim() == 0) invalid("cat was given a tensor without dims", "", "stack()");
  const std::size_t d = index_of(dim, model);
  Shape shape = model.shape();
  shape[d] = 0;
  DType dtype = model.dtype();
  for (const LocalTensor& tensor : tensors) {
    dtype = promote_types(dtype, tensor.dtype());
    if (is_nothing(tensor)) continue;
    Shape other = tensor.shape();
    if (other.size() == shape.size()) other[d] = shape[d];
    if (other != shape) {
      invalid(fmt::format("cat along dim {} was given shapes {} and {}", d,
                          shape_to_string(model.shape()), shape_to_string(tensor.shape())),
              "", "all dims but that one must be equal");
    }
    shape[d] += tensor.shape()[d];
  }
  LocalTensor result = empty(shape, {dtype, model.device()});
  std::int64_t start = 0;
  for (const LocalTensor& tensor : tensors) {
    if (is_nothing(tensor)) continue;
    const std::int64_t length = tensor.shape()[d];
    result.narrow(static_cast<int>(d), start, length).copy_(tensor);
    start += length;
  }
  return result;
}

LocalTensor stack(const std::vector<LocalTensor>& tensors, int dim) {
  if (tensors.empty()) invalid("stack was given no tensors");
  std::vector<LocalTensor> layers;
  for (const LocalTensor& tensor : tensors) {
    if (tensor.shape() != tensors.front().shape()) {
      invalid(fmt::format("stack was given shapes {} and {}",
                          shape_to_string(tensors.front().shape()),
                          shape_to_string(tensor.shape())));
    }
    layers.push_back(tensor.unsqueeze(dim));
  }
  return cat(layers, normalize_dim(dim, tensors.front().shape().size() + 1));
}

std::vector<LocalTensor> split(const LocalTensor& a, const std::vector<std::int64_t>& sizes,
                               int dim) {
  const std::size_t d = index_of(dim, a);
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const bool negative = std::any_of(sizes.begin(), sizes.end(), [](auto size) { return size < 0; });
  if (negative || total != a.shape()[d]) {
    invalid(fmt::format("split sizes {} do not add up to the {} elements of dim {}",
                        shape_to_string(sizes), a.shape()[d], d));
  }
  std::vector<LocalTensor> pieces;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(a.narrow(static_cast<int>(d), start, size));
    start += size;
  }
  return pieces;
}

std::vector<LocalTensor> split(const LocalTensor& a, std::int64_t split_size, int dim) {
  const std::int64_t total = a.size(dim);
  if (split_size < 0 || (split_size == 0 && total != 0)) {
    invalid(fmt::format("split size {} is not positive", split_size));
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t start = 0; start < total; start += split_size) {
    sizes.push_back(std::min(split_size, total - start));
  }
  if (sizes.empty()) sizes.push_back(0);
  return split(a, sizes, dim);
}

std::vector<LocalTensor> chunk(const LocalTensor& a, int chunks, int dim) {
  const std::int64_t total = a.size(dim);
  if (chunks <= 0) invalid(fmt::format("cannot cut a tensor into {} chunks", chunks));
  const std::int64_t full = (total + chunks - 1) / chunks;
  std::vector<std::int64_t> sizes;
  std::int64_t left = total;
  for (int piece = 0; piece < chunks; ++piece) {
    sizes.push_back(std::min(full, left));
    left -= sizes.back();
  }
  return split(a, sizes, dim);
}

}  // namespace dtrun::tensors
