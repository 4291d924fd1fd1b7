// What is made of other operators: products, einsum, views.
#include <gtest/gtest.h>

#include <limits>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

constexpr tensors::TensorOptions kOfDoubles{.dtype = DType::f64};

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return randn(shape, {seed}, kOfDoubles);
}

/// The sum that an einsum means, letter by letter.
Tensor summed_by_hand(const std::string& a_letters, const Tensor& a, const std::string& b_letters,
                      const Tensor& b, const std::string& output) {
  std::string all = output;
  for (const char letter : a_letters + b_letters) {
    if (all.find(letter) == std::string::npos) all += letter;
  }
  const auto size_of = [&](char letter) {
    const std::size_t in_a = a_letters.find(letter);
    return in_a != std::string::npos ? a.size(static_cast<int>(in_a))
                                     : b.size(static_cast<int>(b_letters.find(letter)));
  };
  const auto place = [&](const std::string& letters, const std::vector<std::int64_t>& index) {
    std::int64_t at = 0;
    for (const char letter : letters) at = at * size_of(letter) + index[all.find(letter)];
    return static_cast<std::size_t>(at);
  };
  Shape shape;
  std::int64_t results = 1, terms = 1;
  for (const char letter : output) {
    shape.push_back(size_of(letter));
    results *= size_of(letter);
  }
  for (const char letter : all) terms *= size_of(letter);
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  std::vector<double> sums(static_cast<std::size_t>(results));
  for (std::int64_t term = 0; term < terms; ++term) {
    std::vector<std::int64_t> index(all.size());
    std::int64_t rest = term;
    for (std::size_t d = all.size(); d-- > 0; rest /= size_of(all[d]))
      index[d] = rest % size_of(all[d]);
    sums[place(output, index)] += x[place(a_letters, index)] * y[place(b_letters, index)];
  }
  return tensor_from(sums, shape, DType::f64);
}

struct Case {
  const char* a;
  Shape a_shape;
  const char* b;
  Shape b_shape;
  const char* output;
};

TEST(EinsumTest, EveryFormIsTheSumThatItMeansOnEveryLayout) {
  const std::vector<Case> cases = {{"ij", {4, 3}, "jk", {3, 5}, "ik"},
                                   {"ij", {4, 3}, "jk", {3, 5}, "ki"},
                                   {"bij", {2, 4, 3}, "bjk", {2, 3, 5}, "bik"},
                                   {"bij", {2, 4, 3}, "bkj", {2, 5, 3}, "kbi"},
                                   {"i", {4}, "j", {5}, "ij"},
                                   {"ij", {4, 3}, "ij", {4, 3}, ""},
                                   {"ij", {4, 3}, "ij", {4, 3}, "ij"},
                                   {"ijk", {2, 4, 3}, "k", {3}, "j"},
                                   {"ij", {4, 3}, "", {}, "ji"},
                                   {"ij", {4, 0}, "jk", {0, 5}, "ik"}};
  for (const Case& one : cases) {
    const std::string equation = std::string(one.a) + "," + one.b + "->" + one.output;
    SCOPED_TRACE(equation);
    const Tensor a = numbers(one.a_shape, 1), b = numbers(one.b_shape, 2);
    const Tensor expected = summed_by_hand(one.a, a, one.b, b, one.output);
    EXPECT_EQ(difference(einsum(equation, {a, b}), expected, {1e-12, 1e-12}), "");
    test::run_ranks(4, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2, 2});
      const auto placed = [&](const Tensor& whole, const Placement& first) {
        return distribute_tensor(
            whole, mesh, {whole.dim() == 0 && first.is_shard() ? Replicate() : first, Replicate()},
            {.source_rank = -1});
      };
      for (const Placement& of_a : {Shard(0), Shard(-1), Replicate(), Partial()}) {
        for (const Placement& of_b : {Shard(0), Shard(-1), Replicate(), Partial()}) {
          const Tensor result = einsum(equation, {placed(a, of_a), placed(b, of_b)});
          EXPECT_EQ(difference(result.full_tensor(), expected, {1e-12, 1e-12}), "")
              << of_a.to_string() << of_b.to_string();
        }
      }
    });
  }
}

TEST(EinsumTest, OneOperandAndThreeAndNoArrow) {
  const Tensor a = numbers({3, 4}, 1), b = numbers({4, 5}, 2), c = numbers({5, 2}, 3);
  EXPECT_EQ(difference(einsum("ij->ji", {a}), a.t(), {0, 0}), "");
  EXPECT_EQ(difference(einsum("ij->", {a}), a.sum(), {1e-12, 1e-12}), "");
  EXPECT_EQ(
      difference(einsum("ij, jk, kl -> il", {a, b, c}), matmul(matmul(a, b), c), {1e-12, 1e-12}),
      "");
  const Tensor column = a.slice(1, 0, 1), row = b.slice(0, 0, 1);
  EXPECT_EQ(difference(einsum("ij,ij->ij", {a, column}), a * column, {0, 0}), "");
  EXPECT_EQ(
      difference(einsum("ij,jk->ik", {a, row}), matmul(a, row.expand(b.shape())), {1e-12, 1e-12}),
      "");
  EXPECT_EQ(difference(einsum("ba", {a}), a.t(), {0, 0}), "");
  EXPECT_EQ(difference(einsum("ij,jk", {a, b}), matmul(a, b), {1e-12, 1e-12}), "");
}

TEST(EinsumTest, ItsGradientIsThatOfTheProduct) {
  const Tensor a = numbers({3, 4}, 1).requires_grad_(), b = numbers({4, 5}, 2).requires_grad_();
  einsum("ij,jk->ki", {a, b}).sum().backward();
  const Tensor x = a.detach().requires_grad_(), y = b.detach().requires_grad_();
  matmul(x, y).sum().backward();
  EXPECT_EQ(difference(a.grad(), x.grad(), {1e-12, 1e-12}), "");
  EXPECT_EQ(difference(b.grad(), y.grad(), {1e-12, 1e-12}), "");
}

TEST(EinsumTest, ALetterTwiceInOneOperandIsTheDiagonal) {
  const Tensor a = arange(9).to(DType::f64).reshape({3, 3});
  EXPECT_EQ(einsum("ii->i", {a}).to_vector(), (std::vector<double>{0, 4, 8}));
  EXPECT_EQ(einsum("ii->", {a}).item(), 12);
  EXPECT_EQ(einsum("ii", {a}).item(), 12);
  EXPECT_EQ(einsum("iii->i", {arange(8).reshape({2, 2, 2})}).to_vector(),
            (std::vector<double>{0, 7}));
  EXPECT_EQ(einsum("iji->ij", {arange(12).reshape({2, 3, 2})}).to_vector(),
            (std::vector<double>{0, 2, 4, 7, 9, 11}));
  EXPECT_EQ(difference(einsum("ii,ij->ij", {a, a}), einsum("ii->i", {a}).unsqueeze(1) * a, {0, 0}),
            "");
  // What lies beside the diagonal does not count, and -0 stays.
  const Tensor odd = tensor({{-0.0, std::nan("")}, {std::nan(""), 1.0}});
  EXPECT_TRUE(std::signbit(einsum("ii->i", {odd}).to_vector()[0]));
  EXPECT_EQ(einsum("ii->", {odd}).item(), 1);

  const auto gradient = [](const Tensor& x) {
    const Tensor leaf = x.detach().requires_grad_();
    const Tensor picked = einsum("iji->ji", {leaf});
    (picked * picked).sum().backward();
    return std::pair(picked, leaf.grad());
  };
  const Tensor whole = numbers({4, 3, 4}, 1);
  const auto [picked, of_whole] = gradient(whole);
  EXPECT_EQ(of_whole.to_vector()[4 * 3 + 1], 2 * whole.to_vector()[4 * 3 + 1]);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const Placement all[] = {Replicate(), Shard(0), Shard(1), Shard(2), Partial()};
    for (const Placement& first : all) {
      for (const Placement& second : all) {
        const Tensor x = distribute_tensor(whole, mesh, {first, second}, {.source_rank = -1});
        const auto [value, slope] = gradient(x);
        EXPECT_EQ(difference(value.full_tensor(), picked, {1e-12, 1e-12}), "")
            << first.to_string() << second.to_string();
        EXPECT_EQ(difference(slope.full_tensor(), of_whole, {1e-12, 1e-12}), "")
            << first.to_string() << second.to_string();
      }
    }
  });
}

TEST(EinsumTest, WhatDoesNotFitIsNamed) {
  const Tensor a = ones({3, 4}), b = ones({4, 5});
  expect_refused([&] { einsum("ij,kj->ik", {a, b}); }, "'j' is 4 and 5");
  expect_refused([&] { einsum("ij->ik", {a}); }, "'k' of the result stands nowhere else");
  expect_refused([&] { einsum("ij,jk->ik", {a}); }, "2 operands, and was given 1");
  expect_refused([&] { einsum("ii->i", {a}); }, "'i' is 3 and 4");
  expect_refused([&] { einsum("ij->ii", {a}); }, "'i' stands twice in the result");
  expect_refused([&] { einsum("i..->i", {a}); }, "'.' is no letter");
  expect_refused([&] { einsum("i....->i", {a}); }, "'.' is no letter");
  expect_refused([&] { einsum("i%->i", {a}); }, "'%' is no letter");
  expect_refused([&] { einsum("...i...->i", {a}); }, "two ellipses");
  expect_refused([&] { einsum("ijk...->i", {a}); }, "3 letters and an ellipsis stand for");
  expect_refused([&] { einsum("...,...", {a, b}); }, "dim 0 of the ellipsis is 3 and 4");
  expect_refused([&] { einsum("ijk->i", {a}); }, "stands for a tensor of shape [3, 4]");
}

TEST(ProductsTest, EachTakesItsDimsOnly) {
  const Tensor a = numbers({3, 4}, 1), b = numbers({4, 5}, 2), v = numbers({4}, 3);
  EXPECT_EQ(difference(mm(a, b), matmul(a, b), {0, 0}), "");
  EXPECT_EQ(difference(mv(a, v), matmul(a, v), {0, 0}), "");
  EXPECT_EQ(difference(dot(v, v), (v * v).sum(), {1e-12, 1e-12}), "");
  EXPECT_EQ(difference(addmm(ones({5}, kOfDoubles), a, b, {.beta = 2, .alpha = 0.5}),
                       matmul(a, b) * 0.5 + 2.0, {1e-12, 1e-12}),
            "");
  const Tensor nan = ones({3, 5}, kOfDoubles) * std::nan("");
  EXPECT_EQ(difference(addmm(nan, a, b, {.beta = 0}), matmul(a, b), {0, 0}), "");
  expect_refused([&] { mm(a, v); }, "it takes 2 and 2 dims");
  expect_refused([&] { bmm(ones({2, 3, 4}), ones({3, 4, 5})); }, "the batches differ");
}

TEST(ProductsTest, SumsOfProductsHaveGradientsOnEveryLayout) {
  const ProductSum factors = {.beta = 2, .alpha = -0.5};
  const std::vector<Tensor> of_matrices = {numbers({1, 5}, 1), numbers({4, 3}, 2),
                                           numbers({3, 5}, 3)};
  const std::vector<Tensor> of_batches = {numbers({4, 5}, 1), numbers({2, 4, 3}, 2),
                                          numbers({2, 3, 5}, 3)};
  for (const std::vector<Tensor>& operands : {of_matrices, of_batches}) {
    for (std::size_t which = 0; which < 3; ++which) {
      SCOPED_TRACE(which);
      const Function function = [&](const Tensor& x) {
        std::vector<Tensor> all = operands;
        for (Tensor& other : all) {
          if (!x.is_distributed()) break;
          other = distribute_tensor(other, x.device_mesh(),
                                    Placements(x.placements().size(), Replicate()),
                                    {.source_rank = -1});
        }
        all[which] = x;
        return all[1].dim() == 2 ? addmm(all[0], all[1], all[2], factors)
                                 : baddbmm(all[0], all[1], all[2], factors);
      };
      expect_right(function, operands[which]);
    }
  }
}

TEST(ProductsTest, FactorsAreTakenAsPyTorchTakesThem) {
  const tensors::TensorOptions integers{.dtype = DType::i64};
  const Tensor a = ones({2, 2}, integers);
  EXPECT_EQ(addmm(a * 3, a, a * 2, {.beta = 0.5}).to_vector(), Values(4, 4));
  EXPECT_EQ(addmm(a * 3, a, a * 2, {.beta = 2.9, .alpha = 1.5}).to_vector(), Values(4, 10));
  const Tensor x = ones({2, 3}, kOfDoubles), y = ones({3, 4}, kOfDoubles);
  EXPECT_EQ(addmm(ones({2, 1}, kOfDoubles), x * kNan, y, {.beta = 2, .alpha = 0}).to_vector(),
            Values(8, 2));
  expect_refused([&] { addmm(ones({4}), x, y); }, "the dtypes differ");
  expect_refused([&] { addmm(ones({1, 2, 4}, kOfDoubles), x, y); }, "cannot expand shape");
  expect_refused([&] { addmm(ones({5}, kOfDoubles), x, y); }, "cannot expand shape");
  expect_refused([&] { baddbmm(ones({4}), ones({2, 3, 4}), ones({3, 4, 5})); }, "batches differ");
}

TEST(ProductsTest, AnInfiniteFactorMeetsNoParts) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor sum = ones({2, 2}, mesh, {Replicate()});
    const Tensor x = ones({2, 4}, mesh, {Shard(1)}), y = ones({4, 2}, mesh, {Shard(0)});
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(addmm(sum, x, y, {.beta = infinity}).full_tensor().to_vector(), Values(4, infinity));
    EXPECT_EQ(addmm(sum, x, y, {.alpha = infinity}).full_tensor().to_vector(), Values(4, infinity));
    // Finite ones do: the product is not summed before what is added to it.
    const CommCounter counter;
    EXPECT_TRUE(addmm(sum, x, y, {.beta = 2}).placements()[0].is_partial());
    EXPECT_EQ(counter.get_total_counts(), 0);
    const DeviceMesh grid(group, {1, 2});
    const Tensor other = Tensor::from_local(ones({2, 2}), grid, {Replicate(), Partial()});
    expect_refused([&] { addmm(other, x, y); }, "different meshes");
  });
}

TEST(ProductsTest, AProductThatEachRankHasCountsOnceBesidePartsOfASum) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const Placements whole = {Replicate(), Replicate()};
    const Tensor x = ones({2, 4}, mesh, whole), y = ones({4, 2}, mesh, whole);
    const Tensor cut_x = ones({2, 4}, mesh, {Replicate(), Shard(1)});
    const Tensor cut_y = ones({4, 2}, mesh, {Replicate(), Shard(0)});
    const Tensor sum = Tensor::from_local(ones({2}), mesh, {Partial(), Partial()});
    for (const Tensor& each : {x, y, cut_x, cut_y, sum}) each.requires_grad_();
    const auto expect_once = [&](const Tensor& a, const Tensor& b, ProductSum factors) {
      const CommCounter counter;
      const Tensor result = addmm(sum, a, b, factors);
      EXPECT_EQ(result.placements(), (Placements{Partial(), Partial()}));
      result.sum().backward();
      EXPECT_EQ(counter.get_total_counts(), 0);
      const double right = 4 * factors.alpha.to_double() + 4 * factors.beta.to_double();
      EXPECT_EQ(result.full_tensor().to_vector(), Values(4, right));
    };
    expect_once(x, y, {});
    expect_once(x, y, {.beta = 3, .alpha = -2});
    expect_once(x, y, {.beta = 0});
    expect_once(cut_x, cut_y, {.beta = 2});
    EXPECT_EQ(sum.grad().full_tensor().to_vector(), Values(2, 2 * (1 + 3 + 0 + 2)));
    EXPECT_EQ(x.grad().full_tensor().to_vector(), Values(8, 2 * (1 - 2 + 1)));
  });
}

TEST(ProductsTest, ASmallSumIsReducedRatherThanALargeProduct) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({512, 2}, mesh, {Replicate()}), w = ones({512, 2}, mesh, {Replicate()});
    const Tensor bias = Tensor::from_local(ones({512}), mesh, {Partial()});
    const CommCounter counter;
    const Tensor result = linear(x, w, bias);
    EXPECT_EQ(placements_to_string(result.placements()), "[R]");
    EXPECT_EQ(counter.get_total_counts(), 1);
    EXPECT_EQ(result.full_tensor().to_vector(), Values(std::size_t{512} * 512, 2 + 2));
  });
}

TEST(ComposedViewsTest, ChunksAreAsManyAsTorchGives) {
  const auto sizes = [](const Tensor& x, int chunks) {
    std::vector<std::int64_t> found;
    for (const Tensor& piece : chunk(x, chunks)) found.push_back(piece.size(0));
    return found;
  };
  using Sizes = std::vector<std::int64_t>;
  const auto expect_sizes = [&](const auto& of) {
    EXPECT_EQ(sizes(of(10), 4), (Sizes{3, 3, 3, 1}));
    EXPECT_EQ(sizes(of(6), 4), (Sizes{2, 2, 2}));
    EXPECT_EQ(sizes(of(3), 7), (Sizes{1, 1, 1}));
    EXPECT_EQ(sizes(of(0), 2), (Sizes{0, 0}));
    expect_refused([&] { chunk(of(3), 0); }, "chunk of 3 elements into 0 pieces");
  };
  expect_sizes([](std::int64_t n) { return arange(n); });
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    expect_sizes([&](std::int64_t n) { return arange(n, mesh, {Shard(0)}); });
  });
}

TEST(ComposedViewsTest, AreTheViewsThatTheyMean) {
  const Tensor a = numbers({2, 3, 4}, 1);
  EXPECT_EQ(flatten(a).shape(), (Shape{24}));
  EXPECT_EQ(flatten(a, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(tensor(1.0)).shape(), (Shape{1}));
  EXPECT_EQ(unflatten(a, -1, {2, -1}).shape(), (Shape{2, 3, 2, 2}));
  EXPECT_EQ(difference(movedim(a, 0, 2), a.permute({1, 2, 0}), {0, 0}), "");
  EXPECT_EQ(difference(movedim(a, -1, 0), a.permute({2, 0, 1}), {0, 0}), "");
  EXPECT_EQ(unbind(a, 1).size(), 3U);
  EXPECT_EQ(difference(unbind(a, 1)[2], a.select(1, 2), {0, 0}), "");
  EXPECT_EQ(
      difference(repeat(a, {2, 1, 3, 1}), stack({cat({a, a, a}, 1), cat({a, a, a}, 1)}), {0, 0}),
      "");
  expect_refused([&] { flatten(a, 2, 1); }, "the first stands behind the last");
  expect_refused([&] { unflatten(a, 0, {3}); }, "it has 2 elements");
  expect_refused([&] { repeat(a, {2}); }, "it takes a number for each dim");
}

}  // namespace
}  // namespace dtrun::dtensor
