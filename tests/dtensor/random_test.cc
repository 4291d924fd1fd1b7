// Random numbers: the state, what every layout has in common, dropout and its gradient.
#include "dtrun/dtensor/ops/random.h"

#include <gtest/gtest.h>

#include <thread>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

TEST(DTensorRandomTest, TheSameSeedGivesTheSameNumbersAndEachCallOthers) {
  manual_seed(3);
  const Tensor one = rand({4}), two = rand({4});
  EXPECT_FALSE(equal(one, two));
  manual_seed(3);
  EXPECT_TRUE(equal(rand({4}), one));
  const RandomState state = random_state();
  EXPECT_EQ(state, (RandomState{.seed = 3, .calls = 1}));
  EXPECT_TRUE(equal(rand({4}), two));
  set_random_state(state);
  EXPECT_TRUE(equal(rand({4}), two));
  EXPECT_TRUE(equal(randn({4}, {.seed = 3, .stream = 2}), randn({4})));
}

TEST(DTensorRandomTest, AScopeTakesNothingFromTheStateAround) {
  manual_seed(3);
  {
    const RandomScope scope({.seed = 8});
    EXPECT_TRUE(equal(randint(0, 100, {5}), randint(0, 100, {5}, {.seed = 8})));
  }
  EXPECT_EQ(random_state(), (RandomState{.seed = 3, .calls = 0}));
}

TEST(DTensorRandomTest, EachThreadHasAStateOfItsOwn) {
  manual_seed(3);
  RandomState of_thread;
  std::thread([&] {
    rand({1});
    of_thread = random_state();
  }).join();
  EXPECT_EQ(of_thread, (RandomState{.calls = 1}));
  EXPECT_EQ(random_state(), (RandomState{.seed = 3}));
}

TEST(DTensorRandomTest, EveryLayoutHasTheNumbersOfOneRank) {
  const Shape shape = {5, 4};
  manual_seed(6);
  const Tensors whole = {rand(shape), randn(shape), randint(-5, 5, shape), randperm(7),
                         rand(shape, {.dtype = DType::f16})};
  for (const std::vector<int>& mesh_shape : {std::vector<int>{3}, std::vector<int>{2, 2}}) {
    test::run_ranks(mesh_shape.size() == 1 ? 3 : 4, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, mesh_shape);
      for (const Placement& placement : {Shard(0), Shard(-1), Replicate(), Partial()}) {
        const Placements placements(mesh_shape.size(), placement);
        SCOPED_TRACE(placements_to_string(placements));
        manual_seed(6);
        const Tensors placed = {rand(shape, mesh, placements), randn(shape, mesh, placements),
                                randint(-5, 5, shape, mesh, placements),
                                randperm(7, mesh, placements),
                                rand(shape, mesh, placements, DType::f16)};
        for (std::size_t i = 0; i < whole.size(); ++i) {
          EXPECT_EQ(placed[i].placements()[0].is_partial(), placement.is_partial());
          EXPECT_TRUE(equal(placed[i].full_tensor(), whole[i])) << i;
        }
        EXPECT_TRUE(equal(rand(shape, RandomKey{6, 0}, mesh, placements).full_tensor(), whole[0]));
        EXPECT_EQ(random_state().calls, 5U);
      }
    });
  }
}

TEST(DTensorRandomTest, DropoutHasTheSameMaskOnEveryLayoutAndInItsGradient) {
  const Function function = [](const Tensor& x) {
    return dropout(x * x, {.p = 0.3, .key = RandomKey{.seed = 4}});
  };
  expect_gradient_right(function, {5, 4});
  expect_right_on_meshes(function, {5, 4});
  const Tensor x = ones({1000}).requires_grad_();
  const Tensor y = dropout(x, {.p = 0.2});
  y.sum().backward();
  EXPECT_TRUE(equal(x.grad(), y));
  const double dropped = sum(eq(y, 0)).item();
  EXPECT_TRUE(dropped > 120 && dropped < 280) << dropped;
  EXPECT_EQ(sum(eq(y, 1.25F)).item(), 1000 - dropped);
}

TEST(DTensorRandomTest, DropoutOfATermOfASumStaysATerm) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = distribute_tensor(ones({4, 4}), mesh, {Partial()}, {.source_rank = -1});
    EXPECT_TRUE(dropout(x).placements()[0].is_partial());
  });
}

TEST(DTensorRandomTest, DropoutOutsideOfTrainingOrOfEverything) {
  const RandomState before = random_state();
  const Tensor x = randn({10}, {1});
  EXPECT_TRUE(same(dropout(x, {.training = false}), x));
  EXPECT_EQ(random_state(), before);
  EXPECT_EQ(sum(abs(dropout(x, {.p = 1}))).item(), 0);
  EXPECT_TRUE(equal(dropout(x, {.p = 0}), x));
  EXPECT_EQ(dropout(x.to(DType::bf16), {.p = 0.1}).dtype(), DType::bf16);
  expect_refused([&] { dropout(x, {.p = 1.5}); }, "between 0 and 1");
  expect_refused([] { dropout(arange(3)); }, "floating point");
}

TEST(DTensorRandomTest, ACheckpointDrawsTheSameNumbersAgain) {
  const Tensor x = ones({100}).requires_grad_();
  const Tensor y = checkpoint([](const Tensor& a) { return dropout(a); }, x);
  const RandomState after = random_state();
  y.sum().backward();
  EXPECT_TRUE(equal(x.grad(), y));
  EXPECT_EQ(random_state(), after);
}

TEST(DTensorRandomTest, AttentionDropsTheSameWeightsOnEveryLayout) {
  const Function function = [](const Tensor& x) {
    const RandomScope scope({.seed = 2});
    return scaled_dot_product_attention(x, x, x, {.is_causal = true, .dropout_p = 0.4});
  };
  expect_gradient_right(function, {2, 3, 3, 2});
  expect_right_on_meshes(function, {2, 3, 3, 2});
}

/// The numbers of the functions that are given a shape, on any layout.
void expect_like(const Tensor& x) {
  const auto expect_same = [&](const Tensor& like, const Tensor& right) {
    EXPECT_EQ(like.dtype(), x.dtype());
    if (x.is_distributed()) {
      EXPECT_EQ(like.placements(), without_partials(x.placements()));
      EXPECT_EQ(like.spec().shard_order(), x.spec().shard_order());
    }
    EXPECT_TRUE(equal(x.is_distributed() ? like.full_tensor() : like, right));
  };
  const RandomScope scope({.seed = 4});
  expect_same(rand_like(x), rand(x.shape(), {.seed = 4}, kDoubles));
  expect_same(randn_like(x), randn(x.shape(), {.seed = 4, .stream = 1}, kDoubles));
  expect_same(randint_like(x, -3, 9),
              randint(-3, 9, x.shape(), {.seed = 4, .stream = 2}, kDoubles));
}

TEST(DTensorRandomTest, LikeAnotherTheNumbersAreThoseOfItsShapeAndLayout) {
  const Tensor whole = randn({5, 6}, {1}, kDoubles);
  expect_like(whole);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const Placement& second : {Shard(0), Shard(1), Replicate(), Partial()})
      expect_like(distribute_tensor(whole, mesh, {Shard(0), second}, {.source_rank = -1}));
    expect_like(distribute_tensor(whole, mesh, {Shard(0), Shard(0)},
                                  {.source_rank = -1, .shard_order = {{0, {1, 0}}}}));
  });
  expect_refused([] { rand_like(tensor({1, 2})); }, "rand_like of int64 numbers");
  expect_refused([] { randn_like(tensor({true})); }, "randn_like of bool numbers");
  expect_refused([] { randint_like(zeros({2}, {.dtype = DType::u8}), -1, 5); },
                 "randint_like from -1");
}

TEST(DTensorRandomTest, NumbersThatADtypeDoesNotHaveAreRefused) {
  const auto perm = [](std::int64_t n, DType dtype) { randperm(n, {.dtype = dtype}); };
  EXPECT_NO_THROW(perm(256, DType::u8));
  expect_refused([&] { perm(257, DType::u8); }, "randperm from 0 to 256 of uint8");
  expect_refused([] { randint(0, 300, {1}, {.dtype = DType::u8}); }, "randint from 0 to 299");
  expect_refused([] { randint(-1, 3, {1}, {.dtype = DType::u8}); }, "randint from -1 to 2");
  expect_refused([] { randint(0, 70000, {1}, {.dtype = DType::f16}); }, "randint from 0 to 69999");
  expect_refused([] { randn({2}, {.dtype = DType::i32}); }, "randn of int32 numbers");
  expect_refused([] { rand({2}, {.dtype = DType::boolean}); }, "rand of bool numbers");
}

}  // namespace
}  // namespace dtrun::dtensor
