// Products of matrices and vectors.
#include "dtrun/dtensor/ops/products.h"

#include "dtensor/samples/samples.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor {
namespace {

using T = const Tensor&;

void add_einsums(Samples& s, const Tensor& a, const Tensor& b) {
  const auto einsum_of = [&](const char* equation, const Tensors& operands) {
    s.add(std::string("einsum ") + equation, operands,
          [equation](const Tensors& in) { return einsum(equation, in); });
  };
  const Tensor row = s.made({s.rows}), column = s.made({s.columns}), square = s.made({4, 4});
  einsum_of("ij,jk->ik", {a, b});
  einsum_of("ij,jk", {a, b});
  einsum_of("ij->ji", {a});
  einsum_of("ij->", {a});
  einsum_of("ba", {a});
  einsum_of("ii->i", {square});
  einsum_of("ii", {square});
  einsum_of("i,j->ij", {row, column});
  einsum_of("ij,j->i", {a, column});
  einsum_of("ij,ij->ij", {a, s.matrix()});
  einsum_of("bij,bkj->bik", {s.made({2, s.rows, s.columns}), s.made({2, 3, s.columns})});
  einsum_of("ij,jk,k->i", {a, b, row});
  einsum_of("...ij,...jk->...ik", {s.made({2, s.rows, s.columns}), b});
  einsum_of("...j->...", {a});
  einsum_of("i...,i->...i", {a, row});
  einsum_of("...i,...", {a, row.unsqueeze(0)});
  einsum_of("...,i->i", {a, column});
}

}  // namespace

void add_products(Samples& s) {
  s.in("Products");
  const Tensor a = s.matrix(), b = s.made({s.columns, s.rows});
  const Tensor layers = s.made({2, s.rows, s.columns}), others = s.made({2, s.columns, s.rows});
  s.of_two({{"matmul", matmul}, {"mm", mm}}, a, b);
  s.of_two({{"matmul, matrix and vector", matmul}, {"mv", mv}}, a, s.made({s.columns}));
  s.of_two({{"matmul, vector and matrix", matmul}}, s.made({s.rows}), a);
  s.of_two({{"matmul, vectors", matmul}, {"dot", dot}}, s.made({s.columns}), s.made({s.columns}));
  s.of_two({{"matmul, layers", matmul}, {"bmm", bmm}}, layers, others);
  s.of_two({{"matmul, layers and matrix", matmul}}, layers, b);
  s.of_two({{"matmul, matrix and layers", matmul}}, a, others);
  s.of_two({{"matmul, broadcast", matmul}}, s.made({2, 1, s.rows, s.columns}),
           s.made({3, s.columns, 2}));
  s.add("addmm", {s.made({s.rows}), a, b}, [](T sum, T x, T y) { return addmm(sum, x, y); });
  s.add("addmm, beta and alpha", {s.made({s.rows, s.rows}), a, b},
        [](T sum, T x, T y) { return addmm(sum, x, y, {.beta = 2, .alpha = 3}); });
  s.add("addmm, beta 0", {s.made({s.rows, s.rows}), a, b},
        [](T sum, T x, T y) { return addmm(sum, x, y, {.beta = 0}); });
  s.add("baddbmm", {s.made({2, s.rows, s.rows}), layers, others},
        [](T sum, T x, T y) { return baddbmm(sum, x, y); });
  s.add("baddbmm, beta and alpha", {s.made({s.rows, s.rows}), layers, others},
        [](T sum, T x, T y) { return baddbmm(sum, x, y, {.beta = 2, .alpha = 3}); });
  s.add("linear", {a, s.matrix(), s.made({s.rows})}, [](T x, T w, T c) { return linear(x, w, c); });
  s.add("linear, no bias", {a, s.matrix()}, [](T x, T w) { return linear(x, w); });
  s.add("linear, layers", {layers, s.made({3, s.columns}), s.made({3})},
        [](T x, T w, T c) { return linear(x, w, c); });
  add_einsums(s, a, b);
}

}  // namespace dtrun::dtensor
