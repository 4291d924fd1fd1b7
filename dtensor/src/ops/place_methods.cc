// Picking, placing and ordering, and composed views, as methods.
#include "autograd/named_call.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/views.h"

namespace dtrun::dtensor {

const Tensor& PlaceMethods::self() const {
  return static_cast<const Tensor&>(*this);
}

Tensor PlaceMethods::index_select(int dim, const Tensor& index) const {
  return dtensor::index_select(self(), dim, index);
}
Tensor PlaceMethods::index_add(int dim, const Tensor& index, const Tensor& source,
                               Scalar alpha) const {
  return dtensor::index_add(self(), dim, index, source, alpha);
}
Tensor PlaceMethods::gather(int dim, const Tensor& index) const {
  return dtensor::gather(self(), dim, index);
}
Tensor PlaceMethods::scatter(int dim, const Tensor& index, const Tensor& source) const {
  return dtensor::scatter(self(), dim, index, source);
}
Tensor PlaceMethods::scatter(int dim, const Tensor& index, Scalar value) const {
  return dtensor::scatter(self(), dim, index, value);
}
Tensor PlaceMethods::scatter(int dim, const Tensor& index, const Tensor& source,
                             ScatterReduce reduce) const {
  return dtensor::scatter(self(), dim, index, source, reduce);
}
Tensor PlaceMethods::scatter(int dim, const Tensor& index, Scalar value,
                             ScatterReduce reduce) const {
  return dtensor::scatter(self(), dim, index, value, reduce);
}
Tensor PlaceMethods::scatter_reduce(int dim, const Tensor& index, const Tensor& source,
                                    ScatterReduce reduce, IncludeSelf include_self) const {
  return dtensor::scatter_reduce(self(), dim, index, source, reduce, include_self);
}
Tensor PlaceMethods::scatter_add(int dim, const Tensor& index, const Tensor& source) const {
  return dtensor::scatter_add(self(), dim, index, source);
}
Tensor PlaceMethods::index_put(const Tensors& positions, const Tensor& values, PutMode mode) const {
  return dtensor::index_put(self(), positions, values, mode);
}
Tensor PlaceMethods::masked_select(const Tensor& mask) const {
  return dtensor::masked_select(self(), mask);
}
Tensor PlaceMethods::nonzero() const {
  return dtensor::nonzero(self());
}
Tensor PlaceMethods::flip(const std::vector<int>& dims) const {
  return dtensor::flip(self(), dims);
}
Tensor PlaceMethods::roll(const std::vector<std::int64_t>& shifts,
                          const std::vector<int>& dims) const {
  return dtensor::roll(self(), shifts, dims);
}
Tensor PlaceMethods::tril(std::int64_t diagonal) const {
  return dtensor::tril(self(), diagonal);
}
Tensor PlaceMethods::triu(std::int64_t diagonal) const {
  return dtensor::triu(self(), diagonal);
}
Sorted PlaceMethods::sort(int dim, SortOrder order) const {
  return dtensor::sort(self(), dim, order);
}
Tensor PlaceMethods::argsort(int dim, SortOrder order) const {
  return dtensor::argsort(self(), dim, order);
}
Sorted PlaceMethods::topk(std::int64_t k, int dim, SortOrder order) const {
  return dtensor::topk(self(), k, dim, order);
}
Tensor PlaceMethods::flatten(int start_dim, int end_dim) const {
  return dtensor::flatten(self(), start_dim, end_dim);
}
Tensor PlaceMethods::unflatten(int dim, const Shape& sizes) const {
  return dtensor::unflatten(self(), dim, sizes);
}
Tensor PlaceMethods::movedim(int source, int destination) const {
  return dtensor::movedim(self(), source, destination);
}
Tensors PlaceMethods::unbind(int dim) const {
  return dtensor::unbind(self(), dim);
}
Tensors PlaceMethods::split(std::int64_t split_size, int dim) const {
  return dtensor::split(self(), split_size, dim);
}
Tensors PlaceMethods::split(const std::vector<std::int64_t>& sizes, int dim) const {
  return dtensor::split(self(), sizes, dim);
}
Tensors PlaceMethods::chunk(int chunks, int dim) const {
  return dtensor::chunk(self(), chunks, dim);
}
Tensor PlaceMethods::repeat(const Shape& repeats) const {
  return dtensor::repeat(self(), repeats);
}
Tensor PlaceMethods::expand_as(const Tensor& other) const {
  return named_call("expand_as", {{"input", self()}, {"other", other}},
                    [&] { return self().expand(other.shape()); });
}
Tensor PlaceMethods::view_as(const Tensor& other) const {
  return named_call("view_as", {{"input", self()}, {"other", other}},
                    [&] { return self().view(other.shape()); });
}
Tensor PlaceMethods::reshape_as(const Tensor& other) const {
  return named_call("reshape_as", {{"input", self()}, {"other", other}},
                    [&] { return self().reshape(other.shape()); });
}
bool PlaceMethods::equal(const Tensor& other, base::CallSite site) const {
  return dtensor::equal(self(), other, site);
}
Tensor Tensor::operator[](const Tensor& positions) const {
  return dtensor::index(*this, positions);
}

}  // namespace dtrun::dtensor
