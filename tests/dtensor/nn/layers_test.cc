// Layers: their first numbers, on one rank and on meshes, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/losses.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/nn/rotary_embedding.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/views.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::nn {
namespace {

double greatest(const Tensor& numbers) {
  return numbers.detach().abs().max().item();
}

TEST(LayersTest, FirstNumbersAreSpreadAsPyTorchs) {
  const Conv2d conv(4, 200, {3, 2}, {.groups = 2});
  const double bound = 1 / std::sqrt(12.0);
  for (const Tensor& numbers : {conv->weight, conv->bias}) {
    EXPECT_LE(greatest(numbers), bound);
    EXPECT_GT(greatest(numbers), 0.95 * bound);
  }
  const Embedding table(100, 50, {.padding_idx = 7});
  EXPECT_NEAR(table->weight.detach().stddev().item(), 1, 0.05);
  EXPECT_EQ(greatest(table->weight[7]), 0);
  EXPECT_GT(greatest(table->weight[8]), 0);
  const LayerNorm norm(3);
  EXPECT_TRUE(equal(norm->weight, ones({3})));
  EXPECT_TRUE(equal(norm->bias, zeros({3})));
}

TEST(LayersTest, InitSpreadsByTheFans) {
  const Tensor weight = empty({100, 30, 2});
  EXPECT_EQ(init::fans_of(weight.shape()).in, 60);
  EXPECT_EQ(init::fans_of(weight.shape()).out, 200);
  init::kaiming_normal_(weight);
  EXPECT_NEAR(weight.stddev().item(), std::sqrt(2.0 / 60), 0.01);
  init::xavier_normal_(weight, 2);
  EXPECT_NEAR(weight.stddev().item(), 2 * std::sqrt(2.0 / 260), 0.01);
  init::xavier_uniform_(weight);
  EXPECT_NEAR(greatest(weight), std::sqrt(6.0 / 260), 0.01);
  init::kaiming_uniform_(weight);
  EXPECT_NEAR(greatest(weight), std::sqrt(6.0 / 60), 0.01);
  EXPECT_TRUE(equal(init::constant_(weight, 3), full({100, 30, 2}, 3)));
  EXPECT_TRUE(equal(init::ones_(weight), ones({100, 30, 2})));
  expect_refused([] { init::kaiming_uniform_(empty({3})); }, "[out, in]");
  // torch.nn.init's gains, and its bounds for mode="fan_out".
  using init::Nonlinearity;
  EXPECT_EQ(init::calculate_gain(Nonlinearity::linear), 1);
  EXPECT_EQ(init::calculate_gain(Nonlinearity::sigmoid), 1);
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::tanh), 1.6666666666666667);
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::relu), 1.4142135623730951);
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::leaky_relu), 1.4141428569978354);
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::leaky_relu, 0.2), 1.3867504905630728);
  EXPECT_EQ(init::calculate_gain(Nonlinearity::selu), 0.75);
  init::kaiming_normal_(weight, 0, init::FanMode::fan_out);
  EXPECT_NEAR(weight.stddev().item(), std::sqrt(2.0 / 200), 0.005);
  init::kaiming_uniform_(weight, 0, init::FanMode::fan_out, Nonlinearity::tanh);
  EXPECT_LE(greatest(weight), 0.20412416);
  EXPECT_GT(greatest(weight), 0.2);
}

TEST(LayersTest, OrthogonalMatricesAreAndIdentitiesToo) {
  const auto kDoubles = tensors::TensorOptions{.dtype = DType::f64};
  // Wide, tall, square, of more than two dims, and of more than one block of rows.
  for (const Shape& shape :
       {Shape{3, 5}, Shape{5, 3}, Shape{100, 100}, Shape{6, 2, 2}, Shape{70, 40, 3}}) {
    const Tensor weight = init::orthogonal_(empty(shape, kDoubles), 2);
    const Tensor matrix = flatten(weight, 1);
    const bool is_tall = matrix.size(0) > matrix.size(1);
    const Tensor products = is_tall ? mm(matrix.t(), matrix) : mm(matrix, matrix.t());
    EXPECT_LT(greatest(products - eye(products.size(0), kDoubles) * 4), 1e-14);
  }
  // Even over all: rotations and reflections come as often, and no direction is preferred.
  double determinants = 0, firsts = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<double> q = init::orthogonal_(empty({2, 2}, kDoubles)).to_vector();
    determinants += q[0] * q[3] - q[1] * q[2];
    firsts += q[0];
  }
  EXPECT_NEAR(determinants / 1000, 0, 0.15);
  EXPECT_NEAR(firsts / 1000, 0, 0.1);
  EXPECT_EQ(init::orthogonal_(empty({0, 4})).numel(), 0);
  EXPECT_TRUE(equal(init::eye_(empty({2, 3})), eye(2, 3)));
  expect_refused([] { init::orthogonal_(empty({3})); }, "[out, in]");
  expect_refused([] { init::eye_(empty({2, 2, 2})); }, "an identity is a matrix");
}

TEST(LayersTest, TruncatedNormalsStayBetweenTheirBoundsAndAreSpreadAsNormals) {
  manual_seed(5);
  const Tensor near = init::trunc_normal_(empty({20000}, {.dtype = DType::f64}), 1, 2, -1, 3);
  EXPECT_GE(near.min().item(), -1);
  EXPECT_LE(near.max().item(), 3);
  // One deviation to either side: the variance is 4 * (1 - 2 phi(1) / 0.6827) = 1.1646.
  EXPECT_NEAR(mean(near).item(), 1, 0.03);
  EXPECT_NEAR(near.var().item(), 1.1646, 0.03);
  const Tensor far = init::trunc_normal_(empty({20000}, {.dtype = DType::f64}), 0, 1, -50, 50);
  EXPECT_NEAR(far.var().item(), 1, 0.03);
  EXPECT_NEAR(mean(pow(far, 4)).item(), 3, 0.2);
  expect_refused([] { init::trunc_normal_(empty({1}), 0, 1, 2, 2); }, "from 2.000000 to 2.000000");
}

TEST(LayersTest, LossesAreModulesOfTwoTensors) {
  const Tensor scores = randn({6, 5}, RandomKey{.seed = 4}).to(DType::f64);
  const Tensor classes = randint(0, 5, {6}, RandomKey{.seed = 5});
  const Tensor weight = rand({5}, RandomKey{.seed = 6}).to(DType::f64) + 0.5;
  const CrossEntropyLoss entropy(LossOptions{.weight = weight, .label_smoothing = 0.1});
  EXPECT_TRUE(equal(entropy(scores, classes),
                    cross_entropy(scores, classes, {.weight = weight, .label_smoothing = 0.1})));
  EXPECT_EQ(entropy->to_string(), "CrossEntropyLoss()");
  EXPECT_EQ(entropy->state_dict().names(), std::vector<std::string>{"weight"});
  const NLLLoss likelihood(LossOptions{.reduction = Reduction::sum});
  EXPECT_TRUE(
      equal(likelihood(scores, classes), nll_loss(scores, classes, {.reduction = Reduction::sum})));
  const MSELoss squares(Reduction::none);
  EXPECT_TRUE(equal(squares(scores, scores + 2), full({6, 5}, 4, {.dtype = DType::f64})));
  EXPECT_EQ(MSELoss()->to_string(), "MSELoss()");
  for (const Tensors& inputs : {Tensors{scores}, Tensors{scores, scores, scores}}) {
    expect_refused([&] { squares->call(inputs); }, "a loss compares what a model gives");
    expect_refused([&] { entropy->call(inputs); }, "criterion(scores, targets)");
    expect_refused([&] { likelihood->call(inputs); }, "NLLLoss was called with");
  }
}

TEST(LayersTest, EveryMeshHasTheFirstNumbersOfOneRank) {
  const auto numbers = [](const Tensor& like) {
    manual_seed(9);
    return Tensors{init::uniform_(like, -1, 2).detach().clone(),
                   init::normal_(like, 1, 3).detach().clone(),
                   init::trunc_normal_(like, 1, 3).detach().clone(),
                   init::orthogonal_(like, 2).detach().clone(), init::eye_(like).detach().clone()};
  };
  const Tensors whole = numbers(empty({6, 4}));
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const Placement& placement : {Shard(0), Shard(1), Replicate()}) {
      const Tensors cut = numbers(empty({6, 4}, mesh, {placement, Replicate()}));
      for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(equal(cut[i], whole[i]));
    }
  });
}

TEST(LayersTest, DropoutDropsInTrainingOnly) {
  const Dropout drop(0.5);
  const Tensor x = ones({1000});
  const double dropped = sum(drop(x).eq(0)).item();
  EXPECT_TRUE(dropped > 400 && dropped < 600) << dropped;
  drop->eval();
  EXPECT_TRUE(equal(drop(x), x));
  expect_refused([] { Dropout(1.5); }, "between 0 and 1");
}

TEST(LayersTest, ListsGiveTheirModulesByNumber) {
  const Sequential two(Linear(2, 3), Flatten());
  EXPECT_EQ(two->size(), 2U);
  EXPECT_NE((*two)[0].as<Linear>(), nullptr);
  EXPECT_NE(two->at(-1).as<Flatten>(), nullptr);
  expect_refused([&] { two->at(2); }, "module 2 of a Sequential of 2", base::ErrorCode::kNotFound);
  const Sequential same_two(two);
  EXPECT_EQ(same_two.get(), two.get());
  EXPECT_EQ(ModuleList()->to_string(), "ModuleList()");
  const ModuleList list{ReLU(), ReLU()};
  list->push_back(Linear(1, 1));
  EXPECT_EQ(list->to_string(),
            "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Linear(in_features=1, out_features=1, "
            "bias=True)\n)");
  expect_refused([&] { list(ones({1})); }, "override forward()");
}

TEST(LayersTest, RotaryEmbeddingTurnsPairsByTheirPosition) {
  const Tensor x = tensor({{1, 2, 3, 4}, {1, 2, 3, 4}}).to(DType::f64);
  const auto turned = [](double a, double b, double angle) {
    return std::pair(a * std::cos(angle) - b * std::sin(angle),
                     b * std::cos(angle) + a * std::sin(angle));
  };
  // Two pairs: angles of position * 1 and position * 100^(-1/2).
  const auto [a, c] = turned(1, 3, 1);
  const auto [b, d] = turned(2, 4, 0.1);
  const RotaryEmbedding halves(4, {.base = 100});
  const std::vector<double> found = halves(x).to_vector(), expected{1, 2, 3, 4, a, b, c, d};
  const auto [e, f] = turned(1, 2, 1);
  const auto [g, h] = turned(3, 4, 0.1);
  const RotaryEmbedding adjacent(4, {.base = 100, .pairs = RotaryPairs::adjacent});
  const std::vector<double> others = adjacent(x, tensor({0, 1})).to_vector(),
                            wanted{1, 2, 3, 4, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-12);
    EXPECT_NEAR(others[i], wanted[i], 1e-12);
  }
  EXPECT_EQ(halves->to_string(), "RotaryEmbedding(4, base=100.0)");
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    for (const int dim : {0, 1}) {
      const Tensor on_mesh = distribute_tensor(x, mesh, {Shard(dim)});
      EXPECT_EQ(halves(on_mesh).to_vector(), found);
    }
  });
  expect_refused([] { RotaryEmbedding(3); }, "even dim");
  expect_refused([&] { halves(x, tensor({0, 1, 2})); }, "positions of shape [3]");
}

TEST(LayersTest, HeadsOfKeysServeGroupsOfQueries) {
  manual_seed(3);
  const MultiheadAttention grouped(8, 4,
                                   {.batch_first = true, .is_causal = true, .num_kv_heads = 2});
  EXPECT_EQ(grouped->in_proj_weight.shape(), (Shape{16, 8}));
  // The same with the keys and values of each head written twice.
  const MultiheadAttention whole(8, 4, {.batch_first = true, .is_causal = true});
  {
    const NoGrad no_grad;
    const auto doubled = [](const Tensor& a) {
      Tensors rows = split(a, 2);
      Tensors all(rows.begin(), rows.begin() + 4);
      for (std::size_t i = 4; i < 8; ++i) all.insert(all.end(), {rows[i], rows[i]});
      return cat(all);
    };
    whole->in_proj_weight.copy_(doubled(grouped->in_proj_weight));
    whole->in_proj_bias.copy_(doubled(grouped->in_proj_bias));
    whole->out_proj->weight.copy_(grouped->out_proj->weight);
    whole->out_proj->bias.copy_(grouped->out_proj->bias);
  }
  const Tensor x = randn({2, 5, 8});
  EXPECT_LT(greatest(grouped(x) - whole(x)), 1e-6);
  expect_refused([] { MultiheadAttention(8, 4, {.num_kv_heads = 3}); }, "with 3 of keys");
}

TEST(LayersTest, WhatCannotBeMadeIsRefusedAtOnce) {
  expect_refused([] { Conv2d(3, 4, 3, {.groups = 2}); }, "a divisor of both");
  expect_refused([] { Embedding(3, 4, {.padding_idx = 3}); }, "one from 0 to 2");
  expect_refused([] { Linear(ones({3, 2}), ones({2})); }, "a bias of [2]");
  expect_refused([] { Linear(ones({3})); }, "a weight of shape [3]");
  expect_refused([] { MultiheadAttention(6, 4); }, "6 numbers in 4 heads");
  const MultiheadAttention attention(6, 2);
  expect_refused([&] { attention(ones({2, 6}), ones({2, 6})); }, "called with 2 tensors");
}

}  // namespace
}  // namespace dtrun::dtensor::nn
