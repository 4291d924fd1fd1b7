// fully_shard with parameters whose `compute` is Shard(): parallelize() has cut them along the same
// axis, they stay cut in forward, and the ranks' samples travel to them.
#include <gtest/gtest.h>

#include "dtensor/parallel/trained_reader.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using Counts = std::map<std::string, std::int64_t>;
using SeenAs = std::optional<Placement>;

StyleOptions of_samples() {
  return {.input = Shard(0), .output = Shard(0)};
}
SeenAs table_and_head_stay_cut(const std::string& name, const Tensor&) {
  return name == "table.weight" || name == "head.weight" ? SeenAs(Shard(0)) : std::nullopt;
}

TEST(FullyShardComputeTest, ATableAndAHeadThatStayCutTrainAsOnOneRank) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& units : std::vector<std::vector<std::string>>{{}, {"blocks.*"}, {"**"}}) {
      test::run_ranks(ranks, [&](const ProcessGroup& group) {
        const DeviceMesh mesh(group, {ranks}, {"dp"});
        const auto model = made_reader(group.rank() == 0 ? 21 : 99);
        parallelize(*model, mesh,
                    {{"table", Rowwise(of_samples())}, {"head", Colwise(of_samples())}});
        fully_shard(*model, mesh, {.units = units, .compute = table_and_head_stay_cut});
        const Tensor table = model->table->weight;
        EXPECT_EQ(table.placements(), Placements{Shard(0)});
        model->table->register_forward_pre_hook([&](nn::Module& module, const Tensors&) {
          EXPECT_EQ(module.get_parameter("weight").local().shape(), table.local().shape());
          EXPECT_TRUE(module.get_parameter("weight").is_distributed());
          return Tensors();
        });
        expect_trains_as_one_rank(*model, group);
      });
    }
  }
}

/// A large vocabulary: its head and table are what a gather would cost most for.
struct Speaker : nn::Module {
  nn::Embedding table = register_module("table", nn::Embedding(4000, 8));
  nn::Linear middle = register_module("middle", nn::Linear(8, 8));
  nn::Linear head = register_module("head", nn::Linear(8, 4000));
  Tensor forward(const Tensor& tokens) override { return head(gelu(middle(table(tokens)))); }
};

TEST(FullyShardComputeTest, OnlySamplesTravelAndGradientsAreSummedOnce) {
  const auto made = [] {
    manual_seed(6);
    const auto model = std::make_shared<Speaker>();
    model->to(DType::f64);
    return model;
  };
  const Tensor tokens = randint(0, 4000, {4}, tensors::RandomKey{.seed = 4});
  const auto whole = made();
  mean(square((*whole)(tokens))).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made();
    parallelize(*model, mesh, {{"table", Rowwise(of_samples())}, {"head", Colwise(of_samples())}});
    fully_shard(*model, mesh, {.compute = [](const std::string& name, const Tensor&) {
      return name.starts_with("middle") ? std::nullopt : SeenAs(Shard(0));
    }});
    for (int i = 0; i < 2; ++i) {
      model->zero_grad();
      const CommCounter counter;
      mean(square((*model)(tokens.narrow(0, group.rank() * 2, 2)))).backward();
      // Tokens, what the head takes, the middle's weights and the table's gradient are gathered.
      // What the table gives, the head's input's gradient and the middle's gradients are summed.
      // Scores go to the ranks of their samples, and their gradients back.
      EXPECT_EQ(counter.get_comm_counts(),
                (Counts{{"all_gather", 4}, {"reduce_scatter", 3}, {"all_to_all", 2}}));
      expect_gradients(*model, *whole);
    }
    // Accumulation adds means.
    mean(square((*model)(tokens.narrow(0, group.rank() * 2, 2)))).backward();
    expect_near(model->head->bias.grad(), whole->head->bias.grad() * 2, "bias");
    expect_near(model->table->weight.grad(), whole->table->weight.grad() * 2, "table");
    // One that wanted none for a while has a mean again.
    model->zero_grad();
    model->table->weight.requires_grad_(false);
    mean(square((*model)(tokens.narrow(0, group.rank() * 2, 2)))).backward();
    EXPECT_FALSE(model->table->weight.grad().defined());
    model->zero_grad();
    model->table->weight.requires_grad_(true);
    mean(square((*model)(tokens.narrow(0, group.rank() * 2, 2)))).backward();
    expect_gradients(*model, *whole);
  });
}

TEST(FullyShardComputeTest, SamplesThatAStyleTakesAsTheSameOnAllRanksAreRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    parallelize(*model, mesh, {{"head", Colwise({.output = Shard(0)})}});
    fully_shard(*model, mesh, {.compute = [](const std::string& name, const Tensor&) {
      return name == "head.weight" ? SeenAs(Shard(0)) : std::nullopt;
    }});
    for (int i = 0; i < 2; ++i) {
      expect_refused([&] { part_of_loss(*model, group); }, "its style takes as Replicate()",
                     base::ErrorCode::kUsage);
    }
    // What is told to be the same on all ranks is taken.
    struct Same : nn::Module {
      nn::Linear layer = register_module("layer", nn::Linear(4, 4, {.bias = false}));
      DeviceMesh on;
      explicit Same(DeviceMesh its_mesh) : on(std::move(its_mesh)) {}
      Tensor forward(const Tensor& x) override {
        return x * layer(distribute_tensor(ones({4}), on, {Replicate()}));
      }
    };
    const auto same = std::make_shared<Same>(mesh);
    parallelize(*same, mesh, {{"layer", Colwise({.output = Replicate()})}});
    fully_shard(*same, mesh,
                {.compute = [](const std::string&, const Tensor&) { return SeenAs(Shard(0)); }});
    const Tensor expected = sum(same->layer->weight.full_tensor(), {1}) * (group.rank() + 1);
    expect_near((*same)(full({4}, group.rank() + 1)), expected, "product", 1e-6);
  });
}

TEST(FullyShardComputeTest, WhatARanksSamplesAloneCannotComputeIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"}), box(group, {1, 2}, {"replicate", "shard"});
    const auto model = made_reader();
    const auto refused = [&](const DeviceMesh& on, FullyShardOptions options, const char* what,
                             const Placement& compute = Shard(0)) {
      options.compute = [&](const std::string& name, const Tensor&) {
        return name == "head.weight" ? SeenAs(compute) : std::nullopt;
      };
      expect_refused([&] { fully_shard(*model, on, options); }, what);
    };
    refused(mesh, {}, "\"head.weight\" as S(0), which parallelize() has not cut on");
    refused(mesh, {}, "compute of \"head.weight\" as P(sum)", Partial());
    for (const Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.is_distributed());
    parallelize(*model, mesh, {{"head", Colwise(of_samples())}});
    refused(box, {}, "a mesh of one axis");
    refused(mesh, {}, "which lies as", Shard(1));
    refused(mesh, {.mixed_precision = {.param = DType::bf16}}, "mixed_precision.param bf16");
    refused(mesh,
            {.storage = [](const std::string&, const Tensor&) { return SeenAs(Replicate()); }},
            "and storage as R");
    expect_refused([&] { fully_shard(*model, mesh); }, "is distributed already");
    EXPECT_FALSE(model->table->weight.is_distributed());
  });
}

}  // namespace
}  // namespace dtrun::dtensor
