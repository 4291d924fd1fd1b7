// Layers: their first numbers, on one rank and on meshes, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
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
}

TEST(LayersTest, EveryMeshHasTheFirstNumbersOfOneRank) {
  const auto numbers = [](const Tensor& like) {
    manual_seed(9);
    return Tensors{init::uniform_(like, -1, 2).detach().clone(),
                   init::normal_(like, 1, 3).detach().clone()};
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
