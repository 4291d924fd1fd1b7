// What moves elements about, and sorts them.
#include "dtensor/samples/samples.h"
#include "dtrun/dtensor/ops/index.h"

namespace dtrun::dtensor {

void add_orders(Samples& s) {
  s.in("Moving and ordering, along dim 0");
  using T = const Tensor&;
  const Tensor x = s.matrix();
  s.add("flip", {x}, [](T a) { return flip(a, {0}); });
  s.add("flip, all dims", {x}, [](T a) { return flip(a, {0, -1}); });
  s.add("roll", {x}, [](T a) { return roll(a, {1}, {0}); });
  s.add("roll, two dims", {x}, [](T a) { return roll(a, {-1, 2}, {0, 1}); });
  s.add("roll, no dims", {x}, [](T a) { return roll(a, {3}); });
  s.add("tril", {x}, [](T a) { return tril(a); });
  s.add("triu", {x}, [](T a) { return triu(a, 1); });
  s.add("tril, above", {x}, [](T a) { return tril(a, 1); });
  s.add("triu, below", {x}, [](T a) { return triu(a, -1); });
  s.add("pad", {x}, [](T a) { return pad(a, {0, 0, 1, 2}); });
  s.add("pad, value, dim -1", {x}, [](T a) { return pad(a, {2, 1}, 3); });
  s.add("pad, cropped", {x}, [](T a) { return pad(a, {1, 0, -1, 1}, 3); });
  s.add("sort", {x}, [](T a) { return sort(a, 0).values; });
  s.add("sort, descending", {x}, [](T a) { return sort(a, 0, SortOrder::descending).values; });
  s.add("sort, dim -1", {x}, [](T a) { return sort(a).values; });
  s.add("sort, indices", {x}, [](T a) { return sort(a, 0).indices; });
  s.add("argsort", {x}, [](T a) { return argsort(a, 0); });
  s.add("argsort, descending, dim -1", {x},
        [](T a) { return argsort(a, -1, SortOrder::descending); });
  s.add("topk", {x}, [](T a) { return topk(a, 2, 0).values; });
  s.add("topk, smallest", {x}, [](T a) { return topk(a, 2, 0, SortOrder::ascending).values; });
  s.add("topk, dim -1", {x}, [](T a) { return topk(a, 1).values; });
  s.add("topk, indices", {x}, [](T a) { return topk(a, 1).indices; });
}

}  // namespace dtrun::dtensor
