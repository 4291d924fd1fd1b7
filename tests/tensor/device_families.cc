#include "tensor/device_families.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/class_rows.h"
#include "dtrun/tensor/ops/index.h"
#include "tensor/device_comparison.h"

namespace dtrun::tensors {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Reduction = std::function<LocalTensor(const LocalTensor&, const std::vector<int>&)>;

/// Those that have the bits of the host's, for every dtype that the host's takes.
const std::vector<std::pair<std::string, Reduction>>& exact_reductions() {
  using A = const LocalTensor&;
  using D = const std::vector<int>&;
  static const std::vector<std::pair<std::string, Reduction>> kAll = {
      {"sum", [](A a, D d) { return sum(a, d, true); }},
      {"mean", [](A a, D d) { return mean(a, d); }},
      {"amax", [](A a, D d) { return amax(a, d); }},
      {"amin", [](A a, D d) { return amin(a, d, true); }},
      {"any", [](A a, D d) { return any(a, d); }},
      {"all", [](A a, D d) { return all(a, d); }},
      {"var", [](A a, D d) { return var(a, d); }},
      {"std", [](A a, D d) { return stddev(a, d, 0); }},
      {"norm_0", [](A a, D d) { return norm(a, 0, d); }},
      {"norm_1", [](A a, D d) { return norm(a, 1, d); }},
      {"norm_2", [](A a, D d) { return norm(a, 2, d); }},
      {"norm_inf", [](A a, D d) { return norm(a, kInfinity, d); }},
      {"norm_-inf", [](A a, D d) { return norm(a, -kInfinity, d); }},
      {"prod", [](A a, D d) { return d.size() == 1 ? prod(a, d[0]) : prod(a); }},
      {"max", [](A a, D d) { return d.size() == 1 ? max(a, d[0]).values : max(a); }},
      {"min", [](A a, D d) { return d.size() == 1 ? min(a, d[0]).values : min(a); }},
      {"max at", [](A a, D d) { return d.size() == 1 ? max(a, d[0]).indices : argmax(a); }},
      {"min at", [](A a, D d) { return d.size() == 1 ? min(a, d[0]).indices : argmin(a); }},
  };
  return kAll;
}
const std::vector<std::pair<std::string, Reduction>>& close_reductions() {
  using A = const LocalTensor&;
  using D = const std::vector<int>&;
  static const std::vector<std::pair<std::string, Reduction>> kAll = {
      {"norm_3", [](A a, D d) { return norm(a, 3, d); }},
      {"logsumexp", [](A a, D d) { return logsumexp(a, d); }},
  };
  return kAll;
}

/// An operation that the host refuses is refused with the same words.
template <typename Compare>
void compare_with_host(const std::string& what, Device device, const LocalTensor& host,
                       const std::function<LocalTensor(const LocalTensor&)>& operation,
                       const Compare& compare) {
  LocalTensor expected;
  std::string refusal;
  try {
    expected = operation(host);
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  try {
    const LocalTensor got = operation(like(host, device));
    if (refusal.empty()) return compare(got, expected, device, what);
    ADD_FAILURE() << what << " went on; the host says " << refusal;
  } catch (const std::exception& error) {
    EXPECT_EQ(error.what(), refusal) << what;
  }
}

void compare_reductions(const LocalTensor& host, const std::vector<int>& dims, Device device,
                        const std::string& where) {
  const std::string what = where + " " + std::string(dtype_name(host.dtype())) + " ";
  for (const auto& [name, reduction] : exact_reductions()) {
    compare_with_host(
        what + name, device, host, [&](const LocalTensor& a) { return reduction(a, dims); },
        &expect_same);
  }
  for (const auto& [name, reduction] : close_reductions()) {
    compare_with_host(
        what + name, device, host, [&](const LocalTensor& a) { return reduction(a, dims); },
        &expect_close);
  }
}

}  // namespace

void expect_reductions_as_on_host(Device device) {
  for (const DType dtype : kAllDTypes) {
    for (const LocalTensor& host : layouts_of(dtype, 3)) {
      compare_reductions(host, {0}, device, "columns");
      compare_reductions(host, {1}, device, "rows");
      compare_reductions(host, {}, device, "all");
    }
    const LocalTensor cube = numbers({3, 5, 7}, dtype, 9);
    compare_reductions(cube, {0, 2}, device, "outer and inner");
    compare_reductions(cube.transpose(0, 2), {1}, device, "middle of a transposed");
    compare_reductions(numbers({}, dtype, 4), {}, device, "a number");
    compare_reductions(numbers({0, 3}, dtype, 4), {0}, device, "nothing");
    compare_reductions(numbers({0, 3}, dtype, 4), {1}, device, "no rows");
    compare_reductions(numbers({2, 7000}, dtype, 5), {1}, device, "long rows");
    compare_reductions(numbers({2, 7000}, dtype, 5), {0}, device, "many columns");
    compare_reductions(numbers({2100, 19}, dtype, 6), {0}, device, "long columns");
    compare_reductions(numbers({70001}, dtype, 6), {0}, device, "one long row");
  }
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const LocalTensor odd =
        tensor_from(std::vector<double>{0.0, -0.0, kNan, -0.0, 0.0, 1.0, kInfinity, -kInfinity, 2.0,
                                        -kInfinity, -kInfinity, -kInfinity, kNan, kNan, 1.0},
                    {5, 3}, dtype);
    compare_reductions(odd, {0}, device, "odd columns");
    compare_reductions(odd, {1}, device, "odd rows");
    compare_reductions(odd, {}, device, "odd");
    LocalTensor late = zeros({3000}, {dtype});
    late.slice(0, 2500, 2501).fill_(kNan);
    compare_reductions(late, {0}, device, "a late nan");
  }
}

void expect_scans_as_on_host(Device device) {
  using A = const LocalTensor&;
  const auto compare = [device](A host, int dim, auto expect) {
    const std::string what = std::string(dtype_name(host.dtype())) + shape_to_string(host.shape());
    compare_with_host(
        "cumsum " + what, device, host, [dim](A a) { return cumsum(a, dim); }, expect);
    compare_with_host(
        "reverse " + what, device, host, [dim](A a) { return reverse_cumsum(a, dim); }, expect);
    compare_with_host(
        "cumprod " + what, device, host, [dim](A a) { return cumprod(a, dim); }, expect);
  };
  for (const DType dtype : kAllDTypes) {
    for (const LocalTensor& host : layouts_of(dtype, 5)) {
      compare(host, 0, &expect_same);
      compare(host, -1, &expect_same);
    }
    compare(numbers({}, dtype, 1), 0, &expect_same);
    compare(numbers({0, 3}, dtype, 1), 0, &expect_same);
    compare(numbers({3, 0}, dtype, 1), 0, &expect_same);
    compare(numbers({5000, 70}, dtype, 1), 1, &expect_same);
    const auto expect = is_floating_point(dtype) ? &expect_close : &expect_same;
    // Products stay within what a dtype holds.
    const LocalTensor near_one = is_floating_point(dtype)
                                     ? (randn({3, 5000}, {1, 2}) * 0.01 + 1.0).to(dtype)
                                     : numbers({3, 5000}, dtype, 2);
    compare(near_one, 1, expect);
    compare(near_one.transpose(0, 1), 0, expect);
    compare(near_one.slice(1, 0, 65), 1, expect);
    compare(near_one.slice(1, 0, 2048), 1, expect);
  }
  // Tiles of tiles.
  compare(numbers({5'000'000}, DType::u8, 2).to(DType::i64), 0, &expect_same);
  const LocalTensor odd = zeros({5000});
  odd.slice(0, 4000, 4001).fill_(kNan);
  odd.slice(0, 3000, 3001).fill_(kInfinity);
  compare(odd, 0, &expect_same);
}

namespace {

/// Positions in [0, size).
LocalTensor positions_below(std::int64_t size, const Shape& shape, std::uint64_t seed) {
  const LocalTensor random = randn(shape, {seed, 7}, {.dtype = DType::f64}) * 1000.0;
  std::vector<std::int64_t> positions = random.to(DType::i64).to_vector_i64();
  for (std::int64_t& position : positions) position = (position % size + size) % size;
  return tensor_from(positions, shape, DType::i64);
}

using Pick = std::function<LocalTensor(const LocalTensor&, const LocalTensor&)>;

/// pick(tensor, index) on both sides.
void compare_picks(const std::string& what, Device device, const LocalTensor& host,
                   const LocalTensor& index, const Pick& pick) {
  const LocalTensor remote = like(index, device);
  compare_with_host(
      what + " " + std::string(dtype_name(host.dtype())), device, host,
      [&](const LocalTensor& a) { return pick(a, a.device().is_cpu() ? index : remote); },
      &expect_same);
}

}  // namespace

void expect_picks_as_on_host(Device device) {
  using A = const LocalTensor&;
  const LocalTensor rows = positions_below(4, {9}, 1), columns = positions_below(6, {9}, 2);
  for (const DType dtype : kAllDTypes) {
    for (const LocalTensor& host : layouts_of(dtype, 5)) {
      compare_picks("rows", device, host, rows,
                    [](A a, A index) { return index_select(a, 0, index); });
      compare_picks("columns", device, host, columns.slice(0, 0, 9, 2),
                    [](A a, A index) { return index_select(a, 1, index); });
      compare_picks("gather", device, host, positions_below(6, {3, 11}, 3),
                    [](A a, A index) { return gather(a, 1, index); });
      compare_picks("gather rows", device, host, positions_below(4, {6, 5}, 3),
                    [](A a, A index) { return gather(a, 0, index); });
      compare_picks("turned gather", device, host, positions_below(4, {5, 6}, 3).transpose(0, 1),
                    [](A a, A index) { return gather(a, 0, index); });
      compare_picks("mask", device, host, numbers({4, 6}, DType::boolean, 8),
                    [](A a, A mask) { return masked_select(a, mask); });
      compare_picks("row mask", device, host, numbers({6}, DType::boolean, 9),
                    [](A a, A mask) { return masked_select(a, mask); });
      compare_picks("classes", device, host, positions_below(6, {4}, 2),
                    [](A a, A index) { return pick_classes(a, index, 3); });
      compare_picks("a cut's classes", device, host, positions_below(16, {4}, 2), [](A a, A index) {
        return pick_classes(a, index, 3, {5, 16});
      });
      compare_picks("wrong classes", device, host, positions_below(4, {4}, 2) + 3.0,
                    [](A a, A index) { return pick_classes(a, index.to(DType::i64), -100); });
      compare_picks("placed classes", device, host.select(1, 2), positions_below(7, {4}, 2),
                    [](A a, A index) { return place_classes(a, index, 7, 1); });
      compare_picks("nothing", device, host, positions_below(4, {0}, 3),
                    [](A a, A index) { return index_select(a, 0, index); });
    }
    const LocalTensor number = numbers({}, dtype, 5);
    compare_picks("number", device, number, positions_below(1, {}, 3),
                  [](A a, A index) { return gather(a, 0, index); });
    compare_picks("of a number", device, number, positions_below(1, {1}, 3),
                  [](A a, A index) { return index_select(a, 0, index); });
    compare_picks("table", device, numbers({50, 3, 7}, dtype, 5), positions_below(50, {4000}, 3),
                  [](A a, A index) { return index_select(a, 0, index); });
  }
  const LocalTensor line = arange(6),
                    wrong = tensor_from(std::vector<double>{1, 5, -2, 6, 7}, {5}, DType::i64);
  for (const auto& pick : std::vector<Pick>{
           [](A a, A i) { return index_select(a, 0, i); }, [](A a, A i) { return gather(a, 0, i); },
           [](A a, A i) { return scatter(a, 0, i, 1); },
           [](A a, A i) { return scatter_add(a, 0, i, i); },
           [](A a, A i) { return index_add(a, 0, i, i); }, [](A, A i) { return one_hot(i, 6); },
           [](A, A i) { return positions_from_start("at", i, 0, 6); },
           [](A a, A i) { return gather(a, 0, i.to(DType::i32)); }}) {
    compare_picks("a wrong position", device, line, wrong, pick);
  }
  compare_picks("one_hot", device, line, rows, [](A, A i) { return one_hot(i, 5); });
  compare_picks("from the end", device, line, wrong.slice(0, 0, 3),
                [](A, A i) { return positions_from_start("at", i, 0, 6); });
  compare_picks("no trues", device, line, zeros({6}, {DType::boolean}),
                [](A, A mask) { return true_positions(mask); });
  compare_picks("of no elements", device, line, zeros({0}, {DType::boolean}),
                [](A, A mask) { return true_positions(mask); });
  compare_picks("many trues", device, line, numbers({30000}, DType::boolean, 3),
                [](A, A mask) { return true_positions(mask); });
}

void expect_placements_as_on_host(Device device) {
  using A = const LocalTensor&;
  for (const DType dtype : kAllDTypes) {
    const LocalTensor parts = numbers({7, 11}, dtype, 31);
    const LocalTensor remote_parts = parts.to(device);
    const auto beside = [&](A a) { return a.device().is_cpu() ? parts : remote_parts; };
    for (const LocalTensor& host : layouts_of(dtype, 5)) {
      for (const int dim : {0, 1}) {
        const Shape shape = dim == 0 ? Shape{7, 5} : Shape{3, 11};
        const LocalTensor index = positions_below(dim == 0 ? 4 : 6, shape, 3);
        for (const LocalTensor& way : {index, index.transpose(0, 1).clone().transpose(0, 1)}) {
          compare_picks("scatter", device, host, way,
                        [&](A a, A i) { return scatter(a, dim, i, beside(a)); });
          compare_picks("scatter a number", device, host, way,
                        [&](A a, A i) { return scatter(a, dim, i, 1); });
          compare_picks("scatter_add", device, host, way,
                        [&](A a, A i) { return scatter_add(a, dim, i, beside(a)); });
          for (const ScatterReduce reduce :
               {ScatterReduce::sum, ScatterReduce::prod, ScatterReduce::mean, ScatterReduce::amax,
                ScatterReduce::amin}) {
            compare_picks("scatter_reduce", device, host, way,
                          [&](A a, A i) { return scatter_reduce(a, dim, i, beside(a), reduce); });
          }
        }
      }
      compare_picks("index_add", device, host, positions_below(4, {7}, 4),
                    [&](A a, A i) { return index_add(a, 0, i, beside(a).slice(1, 0, 6)); });
      compare_picks("index_add of columns", device, host, positions_below(6, {11}, 4),
                    [&](A a, A i) { return index_add(a, 1, i, beside(a).slice(0, 0, 4), 3); });
      compare_picks("nowhere", device, host, positions_below(4, {0, 6}, 4),
                    [&](A a, A i) { return scatter_add(a, 0, i, beside(a)); });
    }
    compare_picks(
        "a number's", device, numbers({}, dtype, 5), positions_below(1, {1}, 3),
        [&](A a, A i) { return index_add(a, 0, i, beside(a).select(0, 0).select(0, 0).clone()); });
    // As an embedding's gradient: many rows for few places, over several tiles of the sort.
    const LocalTensor many = numbers({3000, 5}, dtype, 6);
    const LocalTensor remote = many.to(device);
    compare_picks(
        "embedding", device, zeros({10, 5}, {dtype}), positions_below(10, {3000}, 4),
        [&](A a, A i) { return index_add(a, 0, i, a.device().is_cpu() ? many : remote); });
    compare_picks("expanded", device, zeros({10, 5}, {dtype}),
                  positions_below(10, {3000, 1}, 4).expand({3000, 5}),
                  [&](A a, A i) { return scatter(a, 0, i, a.device().is_cpu() ? many : remote); });
  }
  compare_picks("half a factor", device, zeros({4}), positions_below(4, {4}, 4), [](A a, A i) {
    return index_add(a, 0, i, ones({4}, {DType::f32, a.device()}), 0.5);
  });
}

void expect_rearrangements_as_on_host(Device device) {
  using A = const LocalTensor&;
  const std::vector<std::pair<std::string, std::function<LocalTensor(A)>>> all = {
      {"flip rows", [](A a) { return flip(a, {0}); }},
      {"flip columns", [](A a) { return flip(a, {-1}); }},
      {"flip both",
       [](A a) {
         return flip(a, {1, 0});
       }},
      {"flip twice",
       [](A a) {
         return flip(a, {0, -2});
       }},
      {"flip none", [](A a) { return flip(a, {}); }},
      {"tril", [](A a) { return tril(a); }},
      {"tril above", [](A a) { return tril(a, 2); }},
      {"tril below", [](A a) { return tril(a, -2); }},
      {"triu", [](A a) { return triu(a); }},
      {"triu above", [](A a) { return triu(a, 9); }},
      {"triu below", [](A a) { return triu(a, -1); }},
      {"roll", [](A a) { return roll(a, {5}); }},
      {"roll dims",
       [](A a) {
         return roll(a, {1, -2}, {0, 1});
       }},
      {"pad",
       [](A a) {
         return pad(a, {1, 2, 3, -1}, 1);
       }},
      {"cat",
       [](A a) {
         return cat({a, a}, 1);
       }},
      {"stack",
       [](A a) {
         return stack({a, a}, -1);
       }},
  };
  for (const DType dtype : kAllDTypes) {
    std::vector<LocalTensor> hosts = layouts_of(dtype, 2);
    hosts.push_back(numbers({3, 4, 5}, dtype, 1));
    hosts.push_back(numbers({0, 3}, dtype, 1));
    hosts.push_back(numbers({7}, dtype, 1));
    hosts.push_back(numbers({}, dtype, 1));
    for (const LocalTensor& host : hosts) {
      for (const auto& [name, operation] : all) {
        compare_with_host(name + shape_to_string(host.shape()), device, host, operation,
                          &expect_same);
      }
    }
  }
}

void expect_sorting_as_on_host(Device device) {
  using A = const LocalTensor&;
  const auto compare = [device](A host, int dim, std::int64_t k) {
    const std::string what = std::string(dtype_name(host.dtype())) + shape_to_string(host.shape());
    for (const SortOrder order : {SortOrder::ascending, SortOrder::descending}) {
      const auto both = [&](const std::string& name, const auto& operation) {
        compare_with_host(
            name + what, device, host, [&](A a) { return operation(a).values; }, &expect_same);
        compare_with_host(
            name + " at " + what, device, host, [&](A a) { return operation(a).indices; },
            &expect_same);
      };
      both("sort ", [&](A a) { return sort(a, dim, order); });
      both("topk ", [&](A a) { return topk(a, k, dim, order); });
    }
  };
  for (const DType dtype : kAllDTypes) {
    for (const LocalTensor& host : layouts_of(dtype, 5)) {
      compare(host, 0, 2);
      compare(host, -1, 0);
      compare(host, -1, 7);
    }
    compare(numbers({}, dtype, 1), 0, 1);
    compare(numbers({0, 3}, dtype, 1), 1, 2);
    compare(numbers({3, 0}, dtype, 1), 1, 0);
    compare(numbers({300, 7}, dtype, 1), 1, 3);
    compare(numbers({3, 700}, dtype, 1), 1, 300);
    compare(numbers({2, 1024}, dtype, 1), 1, 100);
    compare(numbers({2, 5000}, dtype, 1), 1, 250);
    compare(numbers({2, 5000}, dtype, 1).transpose(0, 1), 0, 1000);
  }
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    compare(tensor_from(std::vector<double>{0.0, -0.0, kNan, -0.0, 0.0, 1.0, kInfinity, -kInfinity,
                                            2.0, -kNan, -kInfinity, kInfinity},
                        {12}, dtype),
            0, 5);
  }
}

}  // namespace dtrun::tensors
