// Picking and placing elements by their positions.
#include "dtensor/samples/samples.h"
#include "dtrun/dtensor/ops/index.h"

namespace dtrun::dtensor {
namespace {

using T = const Tensor&;

void add_picked(Samples& s, const Tensor& x) {
  const Tensor list = s.numbers({3}, s.rows), columns = s.numbers({3}, s.columns);
  s.add("index_select", {x, list}, [](T a, T i) { return index_select(a, 0, i); });
  s.add("index_select, dim -1", {x, columns}, [](T a, T i) { return index_select(a, -1, i); });
  s.add("gather", {x, s.numbers({2, s.columns}, s.rows)}, [](T a, T i) { return gather(a, 0, i); });
  s.add("gather, dim -1", {x, s.numbers({s.rows, 2}, s.columns)},
        [](T a, T i) { return gather(a, -1, i); });
  const Tensor mask = s.mask(), line = gt(s.made({s.columns}), 0);
  s.add("masked_select", {x, mask}, [](T a, T m) { return masked_select(a, m); });
  s.add("masked_select, broadcast", {x, line}, [](T a, T m) { return masked_select(a, m); });
  s.add("nonzero", {mask}, [](T m) { return nonzero(m); }).stand_in = DType::boolean;
  s.add("index", {x, list}, [](T a, T i) { return index(a, i); });
  s.add("index, from the end", {x, list - s.rows}, [](T a, T i) { return a[i]; });
  s.add("index, a mask", {x, mask}, [](T a, T m) { return index(a, m); });
  s.add("index, i32", {x, list.to(DType::i32)}, [](T a, T i) { return index(a, i); });
  s.add("index of two", {x, s.numbers({3}, s.rows), s.numbers({2, 1}, s.columns)},
        [](T a, T i, T j) {
          return index(a, Tensors{i, j});
        });
  const Tensor line_of_rows = s.numbers({3}, s.rows);
  s.add("one_hot", {line_of_rows}, [rows = s.rows](T i) { return one_hot(i, rows); }).stand_in =
      DType::i64;
  s.add("embedding", {x, s.numbers({2, 3}, s.rows)}, [](T a, T i) { return embedding(i, a); });
  s.add("embedding, padding_idx", {x, s.numbers({2, 3}, s.rows)},
        [](T a, T i) { return embedding(i, a, 0); });
}

void add_placed(Samples& s, const Tensor& x) {
  const Tensor list = s.numbers({3}, s.rows), beside = s.numbers({2, s.columns}, s.rows);
  const Tensor slices = s.made({3, s.columns}), elements = s.made({2, s.columns});
  s.add("index_add", {x, list, slices}, [](T a, T i, T b) { return index_add(a, 0, i, b); });
  s.add("index_add, alpha, dim -1", {x, s.numbers({3}, s.columns), s.made({s.rows, 3})},
        [](T a, T i, T b) { return index_add(a, -1, i, b, 2); });
  s.add("scatter_add", {x, beside, elements},
        [](T a, T i, T b) { return scatter_add(a, 0, i, b); });
  s.add("scatter_add, dim -1", {x, s.numbers({s.rows, 2}, s.columns), s.made({s.rows, 2})},
        [](T a, T i, T b) { return scatter_add(a, -1, i, b); });
  const Tensor each_row = arange(s.rows).unsqueeze(1).expand(s.shape()).clone();
  const Tensor each_column = arange(s.columns).expand(s.shape()).clone();
  s.add("scatter", {x, each_row, s.matrix()}, [](T a, T i, T b) { return scatter(a, 0, i, b); });
  s.add("scatter, dim -1", {x, each_column, s.matrix()},
        [](T a, T i, T b) { return scatter(a, -1, i, b); });
  s.add("scatter (number)", {x, beside}, [](T a, T i) { return scatter(a, 0, i, 2); });
  s.add("index_put", {x, arange(2), s.made({2, s.columns})},
        [](T a, T i, T b) { return index_put(a, i, b); });
  s.add("index_put, one value", {x, arange(2), s.made({})},
        [](T a, T i, T b) { return index_put(a, i, b); });
  const Tensor line = s.numbers({3}, s.rows), places = s.numbers({2, 1}, s.columns);
  s.add("index_put, accumulated", {x, line, places, s.made({2, 3})}, [](T a, T i, T j, T b) {
    return index_put(a, Tensors{i, j}, b, PutMode::accumulate);
  });
}

const std::vector<std::pair<std::string, ScatterReduce>> kReduces = {{"sum", ScatterReduce::sum},
                                                                     {"prod", ScatterReduce::prod},
                                                                     {"mean", ScatterReduce::mean},
                                                                     {"amax", ScatterReduce::amax},
                                                                     {"amin", ScatterReduce::amin}};

void add_folded(Samples& s, const Tensor& x) {
  const Tensor beside = s.numbers({2, s.columns}, s.rows), elements = s.made({2, s.columns});
  const Tensor columns = s.numbers({s.rows, 2}, s.columns);
  for (const auto& [name, reduce] : kReduces) {
    const std::string folded = "scatter_reduce, " + name;
    s.add(folded, {x, beside, elements},
          [reduce = reduce](T a, T i, T b) { return scatter_reduce(a, 0, i, b, reduce); });
    s.add(folded + ", without self", {x, beside, elements}, [reduce = reduce](T a, T i, T b) {
      return scatter_reduce(a, 0, i, b, reduce, IncludeSelf::no);
    });
    s.add(folded + ", dim -1", {x, columns, s.made({s.rows, 2})},
          [reduce = reduce](T a, T i, T b) { return scatter_reduce(a, -1, i, b, reduce); });
  }
  const std::vector<std::pair<std::string, ScatterReduce>> of_scatter = {
      {"add", ScatterReduce::sum}, {"multiply", ScatterReduce::prod}};
  for (const auto& [name, reduce] : of_scatter) {
    s.add("scatter, " + name, {x, beside, elements},
          [reduce = reduce](T a, T i, T b) { return scatter(a, 0, i, b, reduce); });
    s.add("scatter (number), " + name, {x, beside},
          [reduce = reduce](T a, T i) { return scatter(a, 0, i, 2, reduce); });
  }
}

}  // namespace

void add_places(Samples& s) {
  s.in("Picking and placing, along dim 0");
  const Tensor x = s.matrix();
  add_picked(s, x);
  add_placed(s, x);
  add_folded(s, x);
}

}  // namespace dtrun::dtensor
