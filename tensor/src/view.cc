// Views share the elements; cat and stack copy.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/view_arguments.h"

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
  Shape target = inferred_shape("view", this->shape(), std::move(shape));
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
  Shape target = inferred_shape("view", this->shape(), std::move(shape));
  std::optional<Strides> strides = view_strides(*this, target);
  if (strides)
    return LocalTensor(storage(), dtype(), std::move(target), std::move(*strides), offset());
  return clone().view(std::move(target));
}

LocalTensor LocalTensor::slice(int dim, std::int64_t start, std::int64_t end,
                               std::int64_t step) const {
  const std::size_t d = index_of(dim, *this);
  const SliceRange range = slice_range(this->shape(), static_cast<int>(d), start, end, step);
  Shape shape = this->shape();
  Strides strides = this->strides();
  shape[d] = range.size();
  strides[d] *= shape[d] > 1 ? step : 1;
  return LocalTensor(storage(), dtype(), std::move(shape), std::move(strides),
                     offset() + range.first * this->strides()[d]);
}

LocalTensor LocalTensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  const std::size_t d = index_of(dim, *this);
  const SliceRange range = narrow_range(this->shape(), static_cast<int>(d), start, length);
  return slice(static_cast<int>(d), range.first, range.end);
}

LocalTensor LocalTensor::select(int dim, std::int64_t index) const {
  const std::size_t d = index_of(dim, *this);
  const std::int64_t position = index_in(this->shape(), static_cast<int>(d), index);
  Shape shape = this->shape();
  Strides strides = this->strides();
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(d));
  return LocalTensor(storage(), dtype(), std::move(shape), std::move(strides),
                     offset() + position * this->strides()[d]);
}

LocalTensor LocalTensor::transpose(int dim0, int dim1) const {
  // As in PyTorch a tensor without dims has a dim 0 here.
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
  // Any stride would do for a dim of one element. This one is PyTorch's, for programs that look at
  // strides().
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
  Shape target = expanded_shape(this->shape(), shape);
  const std::size_t added = target.size() - this->shape().size();
  Strides strides(target.size(), 0);
  for (std::size_t d = 0; d < this->shape().size(); ++d) {
    if (target[added + d] == this->shape()[d]) strides[added + d] = this->strides()[d];
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
              "all dims but that one must be equal",
              "the dim in which they differ, or expand() one of them");
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
  check_split_sizes(a.shape(), static_cast<int>(d), sizes);
  std::vector<LocalTensor> pieces;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(a.narrow(static_cast<int>(d), start, size));
    start += size;
  }
  return pieces;
}

std::vector<LocalTensor> split(const LocalTensor& a, std::int64_t split_size, int dim) {
  return split(a, split_sizes(a.size(dim), split_size), dim);
}

std::vector<LocalTensor> chunk(const LocalTensor& a, int chunks, int dim) {
  return split(a, chunk_sizes(a.size(dim), chunks), dim);
}

}  // namespace dtrun::tensors
