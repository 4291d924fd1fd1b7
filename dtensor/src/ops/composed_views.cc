#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/views.h"
#include "ops/named_dim.h"

namespace dtrun::dtensor {
namespace {

[[noreturn]] void refuse_view(std::string what, std::string why, std::string remedy) {
  throw base::Error(base::ErrorCode::kInvalidArgument, std::move(what), std::move(why),
                    std::move(remedy));
}

}  // namespace

Tensor flatten(const Tensor& a, int start_dim, int end_dim) {
  return named_call("flatten", {{"input", a}}, [&] {
    if (a.dim() == 0) {
      named_dim_or_only("flatten", a, start_dim);
      named_dim_or_only("flatten", a, end_dim);
      return a.reshape({1});
    }
    const int start = named_dim("flatten", a, start_dim);
    const int end = named_dim("flatten", a, end_dim);
    if (start > end) {
      refuse_view("flatten from dim " + std::to_string(start) + " to " + std::to_string(end),
                  "the first stands behind the last", "the dims in their order");
    }
    Shape shape;
    std::int64_t joined = 1;
    for (int d = 0; d < a.dim(); ++d) {
      if (d >= start && d <= end) joined *= a.size(d);
      if (d < start || d > end) shape.push_back(a.size(d));
      if (d == end) shape.push_back(joined);
    }
    return a.reshape(shape);
  });
}

Tensor unflatten(const Tensor& a, int dim, const Shape& sizes) {
  return named_call("unflatten", {{"input", a}}, [&] {
    const int d = named_dim("unflatten", a, dim);
    Shape inner = sizes;
    std::int64_t known = 1;
    std::int64_t* unknown = nullptr;
    for (std::int64_t& size : inner) {
      if (size == -1 && unknown != nullptr)
        refuse_view("unflatten was given more than one -1", "one size follows from the others",
                    "all sizes but one");
      if (size == -1) unknown = &size;
      if (size != -1) known *= size;
    }
    if (unknown != nullptr) *unknown = known == 0 ? 0 : a.size(d) / known;
    if (inner.empty() || tensors::numel(inner) != a.size(d)) {
      refuse_view("cannot unflatten dim " + std::to_string(d) + " of shape " +
                      tensors::shape_to_string(a.shape()) + " to " +
                      tensors::shape_to_string(sizes),
                  "it has " + std::to_string(a.size(d)) + " elements",
                  "sizes whose product that is; one of them may be -1");
    }
    Shape shape = a.shape();
    shape.erase(shape.begin() + d);
    shape.insert(shape.begin() + d, inner.begin(), inner.end());
    return a.view(shape);
  });
}

Tensor movedim(const Tensor& a, int source, int destination) {
  return named_call("movedim", {{"input", a}}, [&] {
    // A tensor without dims has one here, as in PyTorch.
    const int from = named_dim_or_only("movedim", a, source);
    const int to = named_dim_or_only("movedim", a, destination);
    if (a.dim() == 0) return a.permute({});
    std::vector<int> order;
    for (int d = 0; d < a.dim(); ++d) {
      if (d != from) order.push_back(d);
    }
    order.insert(order.begin() + to, from);
    return a.permute(order);
  });
}

Tensors unbind(const Tensor& a, int dim) {
  return named_call("unbind", {{"input", a}}, [&] {
    Tensors pieces;
    for (std::int64_t i = 0; i < a.size(dim); ++i) pieces.push_back(a.select(dim, i));
    return pieces;
  });
}

Tensor repeat(const Tensor& a, const Shape& repeats) {
  return named_call("repeat", {{"input", a}}, [&] {
    if (repeats.size() < a.shape().size()) {
      refuse_view("repeat of shape " + tensors::shape_to_string(a.shape()) + " was given " +
                      tensors::shape_to_string(repeats),
                  "it takes a number for each dim", "1 for a dim that stays as it is");
    }
    const std::size_t added = repeats.size() - a.shape().size();
    // Each dim gets one of the repeats' size before it.
    Shape apart, stretched, joined;
    for (std::size_t d = 0; d < repeats.size(); ++d) {
      if (repeats[d] < 0)
        refuse_view("repeat was given " + tensors::shape_to_string(repeats),
                    "nothing is repeated less than 0 times", "numbers from 0");
      const std::int64_t size = d < added ? 1 : a.shape()[d - added];
      apart.push_back(1);
      apart.push_back(size);
      stretched.push_back(repeats[d]);
      stretched.push_back(size);
      joined.push_back(repeats[d] * size);
    }
    return a.reshape(apart).expand(stretched).clone().reshape(joined);
  });
}

}  // namespace dtrun::dtensor
