// MetaScope: models without memory, whose parts have the numbers that the whole would have had.
#include "dtrun/dtensor/nn/meta_scope.h"

#include <gtest/gtest.h>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/distribute_module.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "dtrun/tensor/host_memory.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

/// One of each kind of first numbers.
struct Kinds : nn::Module {
  nn::Embedding table = register_module("table", nn::Embedding(7, 6, {.padding_idx = 2}));
  nn::MultiheadAttention attention =
      register_module("attention", nn::MultiheadAttention(6, 2, {.batch_first = true}));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(6));
  nn::Conv2d window = register_module("window", nn::Conv2d(3, 2, 2));
  nn::Linear head = register_module("head", nn::Linear(6, 5));
  Tensor scale = register_parameter("scale", nn::init::trunc_normal_(empty({6}), 1, 0.5));
  Tensor forward(const Tensor& x) override {
    const Tensor y = norm(table(x));
    return head(attention(y, y, y) * scale);
  }
};

std::shared_ptr<Kinds> made_kinds(std::uint64_t seed) {
  manual_seed(seed);
  return std::make_shared<Kinds>();
}
std::shared_ptr<Kinds> meta_kinds(std::uint64_t seed) {
  manual_seed(seed);
  return nn::make_meta<Kinds>();
}

void expect_same_numbers(const nn::Module& found, const nn::Module& expected) {
  const auto parameters = found.named_parameters(), others = expected.named_parameters();
  ASSERT_EQ(parameters.size(), others.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_FALSE(parameters[i].second.is_deferred()) << parameters[i].first;
    EXPECT_EQ(parameters[i].second.to_vector(), others[i].second.to_vector())
        << parameters[i].first;
  }
}

TEST(MetaScopeTest, WhatHasNoMemoryIsNotUsed) {
  const std::shared_ptr<Kinds> model = meta_kinds(3);
  const RandomState after = random_state();
  for (const Tensor& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.is_deferred());
    EXPECT_TRUE(parameter.is_leaf() && parameter.requires_grad());
  }
  EXPECT_EQ(model->table->weight.shape(), (Shape{7, 6}));
  const Tensor tokens = randint(0, 7, {2, 3}, tensors::RandomKey{.seed = 4});
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { (*model)(tokens); }, [&] { model->scale.to_vector(); },
           [&] { model->state_dict(); }, [&] { add(model->scale, model->scale); }}) {
    expect_refused(use, {"which has no memory yet", "nn::materialize(module)"});
  }
  nn::materialize(*model);
  const std::shared_ptr<Kinds> whole = made_kinds(3);
  EXPECT_EQ(random_state(), after);
  expect_same_numbers(*model, *whole);
  EXPECT_EQ(model->table->weight.select(0, 2).to_vector(), std::vector<double>(6, 0));
  EXPECT_FALSE(empty({2}).is_deferred());
}

TEST(MetaScopeTest, PartsHaveTheNumbersOfTheFirstRanksWhole) {
  const std::shared_ptr<Kinds> whole = made_kinds(3);
  for (const auto& shape : std::vector<std::vector<int>>{{1}, {3}, {2, 2}}) {
    test::run_ranks(
        static_cast<int>(shape.size() == 1 ? shape[0] : 4), [&](const ProcessGroup& group) {
          const DeviceMesh mesh = shape.size() == 1 ? DeviceMesh(group, shape, {"dp"})
                                                    : DeviceMesh(group, shape, {"replicate", "dp"});
          const auto model = meta_kinds(group.rank() == 0 ? 3 : 9);
          fully_shard(*model, mesh, {.units = {"*"}});
          expect_same_numbers(*model, *whole);
        });
  }
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const auto model = meta_kinds(group.rank() == 0 ? 3 : 9);
    parallelize(*model, mesh["tp"], {{"head", Colwise()}, {"table", Rowwise()}});
    EXPECT_TRUE(model->scale.is_deferred());
    // Along tp the first ranks differ: fully_shard compares along dp only.
    fully_shard(*model, mesh["dp"], {.units = {"head"}});
    if (mesh.local_rank("tp") != 0) return;
    EXPECT_EQ(model->attention->in_proj_weight.to_vector(),
              whole->attention->in_proj_weight.to_vector());
  });
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto copies = meta_kinds(group.rank() == 0 ? 3 : 9);
    data_parallel(*copies, mesh);
    expect_same_numbers(*copies, *whole);
    const auto cut = meta_kinds(group.rank() == 0 ? 3 : 9);
    distribute_module(
        *cut, mesh,
        {.partition = [](const std::string& name, nn::Module& module, const DeviceMesh& on) {
          if (name == "head") module.distribute_parameter("weight", on, {Shard(1)});
        }});
    expect_same_numbers(*cut, *whole);
  });
}

TEST(MetaScopeTest, ItTrainsAsAModelThatWasWhole) {
  const auto trained = [](const std::shared_ptr<Reader>& model, const ProcessGroup& group) {
    fully_shard(*model, DeviceMesh(group, {2}, {"dp"}), {.units = {"blocks.*"}});
    optim::AdamW optimizer(model->parameters());
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      part_of_loss(*model, group).backward();
      optimizer.step();
    }
    return model;
  };
  test::run_ranks(2, [&](const ProcessGroup& group) {
    manual_seed(8);
    const auto whole = trained(std::make_shared<Reader>(), group);
    manual_seed(8);
    expect_same_numbers(*trained(nn::make_meta<Reader>(), group), *whole);
  });
}

TEST(MetaScopeTest, NoRankEverHasMoreThanItsPartsAndTheNumbersOfOne) {
  constexpr std::int64_t kMatrix = 4 << 20;  // bytes
  const std::size_t before = tensors::host_memory().now;
  tensors::reset_host_memory_peak();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const auto model = nn::make_meta<nn::SequentialModule>();
    {
      const nn::MetaScope scope;
      for (int i = 0; i < 8; ++i) model->push_back(nn::Linear(1024, 1024, {.bias = false}));
    }
    EXPECT_EQ(tensors::host_memory().now, before);
    group.barrier();
    fully_shard(*model, DeviceMesh(group, {2}, {"dp"}), {.units = {"*"}});
    group.barrier();
  });
  const auto peak = static_cast<std::int64_t>(tensors::host_memory().peak - before);
  if (peak == 0) GTEST_SKIP() << "AddressSanitizer counts no memory";
  // All parts, and on each rank at most four halves of a matrix for its first numbers.
  EXPECT_GE(peak, 8 * kMatrix);
  EXPECT_LE(peak, 8 * kMatrix + 2 * 4 * kMatrix / 2);
}

}  // namespace
}  // namespace dtrun::dtensor
