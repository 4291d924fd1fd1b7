// Views, joins and splits.
#include "dtrun/dtensor/ops/views.h"

#include "dtensor/samples/samples.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using T = const Tensor&;

/// The second of them, or the only one.
const Tensor& piece_of(const Tensors& pieces) {
  if (pieces.empty()) {
    throw base::Error(base::ErrorCode::kInvalidArgument, "a piece of a tensor that has none",
                      "its dim has no elements");
  }
  return pieces.size() > 1 ? pieces[1] : pieces[0];
}

void add_shapes(Samples& s, const Tensor& x, const Tensor& layers) {
  const std::int64_t rows = s.rows, columns = s.columns;
  s.add("view", {x}, [=](T a) { return a.view({rows * columns}); });
  s.add("view, layers", {layers}, [=](T a) { return a.view({2 * rows, columns}); });
  s.add("view_as", {x, s.made({columns, 1, rows})}, [](T a, T b) { return a.view_as(b); });
  s.add("reshape", {x}, [=](T a) { return a.reshape({1, rows, columns}); });
  s.add("reshape, transposed", {x}, [=](T a) { return a.t().reshape({rows * columns}); });
  s.add("reshape_as", {x, s.made({columns, 1, rows})}, [](T a, T b) { return a.reshape_as(b); });
  s.add("unsqueeze", {x}, [](T a) { return a.unsqueeze(1); });
  s.add("unsqueeze, last", {x}, [](T a) { return a.unsqueeze(-1); });
  s.add("squeeze", {s.made({rows, 1})}, [](T a) { return a.squeeze(1); });
  s.add("squeeze, dim -3", {s.made({1, rows, columns})}, [](T a) { return a.squeeze(-3); });
  s.add("expand", {s.made({rows, 1})}, [=](T a) { return a.expand({rows, 3}); });
  s.add("expand, new dims", {x}, [](T a) { return a.expand({2, -1, -1}); });
  s.add("expand_as", {s.made({columns}), s.matrix()}, [](T a, T b) { return a.expand_as(b); });
  s.add("flatten", {x}, [](T a) { return flatten(a); });
  s.add("flatten, some dims", {layers}, [](T a) { return flatten(a, 1, 2); });
  s.add("unflatten", {x}, [=](T a) { return unflatten(a, 1, {1, columns}); });
  s.add("unflatten, the rest", {s.made({4, columns})}, [](T a) {
    return unflatten(a, 0, {2, -1});
  });
  s.add("repeat", {x}, [](T a) { return repeat(a, {2, 1}); });
  s.add("repeat, new dims", {x}, [](T a) { return repeat(a, {2, 1, 3}); });
}

void add_orders_of_dims(Samples& s, const Tensor& x, const Tensor& layers) {
  s.add("transpose", {x}, [](T a) { return a.transpose(0, 1); });
  s.add("transpose, last dims", {layers}, [](T a) { return a.transpose(-1, -2); });
  s.add("t", {x}, [](T a) { return a.t(); });
  s.add("permute", {x}, [](T a) { return a.permute({1, 0}); });
  s.add("permute, layers", {layers}, [](T a) { return a.permute({2, 0, -2}); });
  s.add("movedim", {x}, [](T a) { return movedim(a, 0, 1); });
  s.add("movedim, layers", {layers}, [](T a) { return movedim(a, -1, 0); });
}

void add_parts(Samples& s, const Tensor& x) {
  s.add("slice", {x}, [](T a) { return a.slice(0, 1, 9); });
  s.add("slice, step", {x}, [](T a) { return a.slice(1, 0, 9, 2); });
  s.add("slice, from the end", {x}, [](T a) { return a.slice(0, -2, -1); });
  s.add("narrow", {x}, [rows = s.rows](T a) { return a.narrow(0, 0, rows > 1 ? rows - 1 : rows); });
  s.add("select", {x}, [rows = s.rows](T a) { return a.select(0, rows > 1 ? 1 : 0); });
  s.add("select, last", {x}, [](T a) { return a.select(-1, -1); });
  s.add("split", {x}, [](T a) { return piece_of(split(a, 1, 0)); });
  s.add("split, dim -1", {x}, [](T a) { return piece_of(split(a, 3, -1)); });
  s.add("split, sizes", {x}, [columns = s.columns](T a) {
    return piece_of(split(a, std::vector<std::int64_t>{0, columns}, 1));
  });
  s.add("chunk", {x}, [](T a) { return piece_of(chunk(a, 2, 0)); });
  s.add("chunk, the last of fewer", {x}, [](T a) { return chunk(a, 3, 1).back(); });
  s.add("unbind", {x}, [](T a) { return piece_of(unbind(a)); });
  s.add("unbind, dim -1", {x}, [](T a) { return piece_of(unbind(a, -1)); });
}

}  // namespace

void add_views(Samples& s) {
  s.in("Views, joins and splits");
  const Tensor x = s.matrix(), layers = s.made({2, s.rows, s.columns});
  add_shapes(s, x, layers);
  add_orders_of_dims(s, x, layers);
  add_parts(s, x);
  s.add("cat", {x, s.matrix()}, [](const Tensors& in) { return cat(in, 0); });
  s.add("cat, dim -1", {x, s.made({s.rows, 2}), s.made({s.rows, 1})},
        [](const Tensors& in) { return cat(in, -1); });
  s.add("stack", {x, s.matrix()}, [](const Tensors& in) { return stack(in, 0); });
  s.add("stack, dim -1", {x, s.matrix(), s.matrix()},
        [](const Tensors& in) { return stack(in, -1); });
}

}  // namespace dtrun::dtensor
