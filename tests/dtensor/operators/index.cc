// Picking, placing and ordering elements.
#include "dtrun/dtensor/ops/index.h"

#include "dtensor/operators/operators.h"

namespace dtrun::dtensor::vectors {
namespace {

std::vector<std::int64_t> numbers_of(const Call& c, const char* name) {
  if (!c.is_list(name)) return {c.integer(name)};
  const Shape sizes = c.sizes(name);
  return {sizes.begin(), sizes.end()};
}

void add_order(Operators& table) {
  table["flip"] = [](const Call& c) -> Tensors { return {flip(c.in(0), c.dims("dims"))}; };
  table["roll"] = [](const Call& c) -> Tensors {
    return {roll(c.in(0), numbers_of(c, "shifts"), c.dims("dims"))};
  };
  table["tril"] = [](const Call& c) -> Tensors { return {tril(c.in(0), c.integer("diagonal"))}; };
  table["triu"] = [](const Call& c) -> Tensors { return {triu(c.in(0), c.integer("diagonal"))}; };
  table["pad"] = [](const Call& c) -> Tensors {
    return {pad(c.in(0), numbers_of(c, "pad"), c.number("value"))};
  };
  table["sort"] = [](const Call& c) -> Tensors {
    const Sorted found =
        sort(c.in(0), c.dim(), c.flag("descending") ? SortOrder::descending : SortOrder::ascending);
    return {found.values, found.indices};
  };
  table["topk"] = [](const Call& c) -> Tensors {
    const bool least = c.has("largest") && !c.flag("largest");
    const Sorted found = topk(c.in(0), c.integer("k"), c.dim(),
                              least ? SortOrder::ascending : SortOrder::descending);
    return {found.values, found.indices};
  };
}

}  // namespace

void add_index(Operators& table) {
  table["index_select"] = [](const Call& c) -> Tensors {
    return {index_select(c.in(0), c.dim(), c.in(1))};
  };
  table["index_add"] = [](const Call& c) -> Tensors {
    return {index_add(c.in(0), c.dim(), c.in(1), c.in(2))};
  };
  table["gather"] = [](const Call& c) -> Tensors { return {gather(c.in(0), c.dim(), c.in(1))}; };
  table["scatter"] = [](const Call& c) -> Tensors {
    return {scatter(c.in(0), c.dim(), c.in(1), c.in(2))};
  };
  table["scatter_add"] = [](const Call& c) -> Tensors {
    return {scatter_add(c.in(0), c.dim(), c.in(1), c.in(2))};
  };
  table["index"] = [](const Call& c) -> Tensors { return {index(c.in(0), c.in(1))}; };
  table["index_put"] = [](const Call& c) -> Tensors {
    return {index_put(c.in(0), c.in(1), c.in(2))};
  };
  table["embedding"] = [](const Call& c) -> Tensors { return {embedding(c.in(1), c.in(0))}; };
  add_order(table);
}

}  // namespace dtrun::dtensor::vectors
