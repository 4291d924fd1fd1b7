// Views, parts and joins.
#include "dtrun/dtensor/ops/views.h"
#include "dtensor/operators/operators.h"
#include "dtrun/dtensor/ops/basic.h"

namespace dtrun::dtensor::vectors {
namespace {

/// PyTorch's squeeze() of all dims of one.
Tensor squeezed(const Tensor& a) {
  Tensor rest = a;
  for (int d = a.dim(); d-- > 0;) {
    if (a.size(d) == 1) rest = rest.squeeze(d);
  }
  return rest;
}

}  // namespace

void add_views(Operators& table) {
  table["view"] = [](const Call& c) -> Tensors { return {c.in(0).view(c.sizes("shape"))}; };
  table["reshape"] = [](const Call& c) -> Tensors { return {c.in(0).reshape(c.sizes("shape"))}; };
  table["expand"] = [](const Call& c) -> Tensors { return {c.in(0).expand(c.sizes("shape"))}; };
  table["flatten"] = [](const Call& c) -> Tensors {
    return {flatten(c.in(0), c.dim("start"), c.dim("end"))};
  };
  table["unflatten"] = [](const Call& c) -> Tensors {
    return {unflatten(c.in(0), c.dim(), c.sizes("sizes"))};
  };
  table["movedim"] = [](const Call& c) -> Tensors {
    return {movedim(c.in(0), c.dim("source"), c.dim("destination"))};
  };
  table["permute"] = [](const Call& c) -> Tensors { return {c.in(0).permute(c.dims("dims"))}; };
  table["repeat"] = [](const Call& c) -> Tensors { return {repeat(c.in(0), c.sizes("repeats"))}; };
  table["squeeze"] = [](const Call& c) -> Tensors {
    return {c.has("dim") ? c.in(0).squeeze(c.dim()) : squeezed(c.in(0))};
  };
  table["unsqueeze"] = [](const Call& c) -> Tensors { return {c.in(0).unsqueeze(c.dim())}; };
  table["t"] = [](const Call& c) -> Tensors { return {c.in(0).t()}; };
  table["transpose"] = [](const Call& c) -> Tensors {
    return {c.in(0).transpose(c.dim("dim0"), c.dim("dim1"))};
  };
  table["slice"] = [](const Call& c) -> Tensors {
    return {c.in(0).slice(c.dim(), c.integer("start"), c.integer("end", INT64_MAX),
                          c.integer("step", 1))};
  };
  table["narrow"] = [](const Call& c) -> Tensors {
    return {c.in(0).narrow(c.dim(), c.integer("start"), c.integer("length"))};
  };
  table["select"] = [](const Call& c) -> Tensors {
    return {c.in(0).select(c.dim(), c.integer("index"))};
  };
  table["cat"] = [](const Call& c) -> Tensors { return {cat(c.all(), c.dim())}; };
  table["stack"] = [](const Call& c) -> Tensors { return {stack(c.all(), c.dim())}; };
  table["split"] = [](const Call& c) {
    if (!c.is_list("size")) return split(c.in(0), c.integer("size"), c.dim());
    const Shape sizes = c.sizes("size");
    return split(c.in(0), std::vector<std::int64_t>(sizes.begin(), sizes.end()), c.dim());
  };
  table["unbind"] = [](const Call& c) { return unbind(c.in(0), c.dim()); };
  table["chunk"] = [](const Call& c) { return chunk(c.in(0), c.dim("chunks"), c.dim()); };
}

}  // namespace dtrun::dtensor::vectors
