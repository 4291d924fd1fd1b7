// How often a transformer under tensor and sequence parallelism talks: PyTorch's exact counts are
// the most that is allowed (test_tp_examples.py: two layers, eight samples of eight tokens).
#include <gtest/gtest.h>

#include "dtensor/parallel/small_models.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using Counts = std::map<std::string, std::int64_t>;

struct TransformerAttention : nn::Module {
  nn::Linear query = register_module("query", nn::Linear(8, 8, {.bias = false}));
  nn::Linear key = register_module("key", nn::Linear(8, 8, {.bias = false}));
  nn::Linear value = register_module("value", nn::Linear(8, 8, {.bias = false}));
  nn::Linear output = register_module("output", nn::Linear(8, 8, {.bias = false}));
  Tensor forward(const Tensor& x) override {
    const auto split = [](const Tensor& all) {
      return unflatten(all, -1, {all.size(-1) / 2, 2}).transpose(1, 2);
    };
    const Tensor mixed = scaled_dot_product_attention(split(query(x)), split(key(x)),
                                                      split(value(x)), {.is_causal = true});
    return output(flatten(mixed.transpose(1, 2), 2));
  }
};

struct FeedForward : nn::Module {
  nn::Linear up = register_module("up", nn::Linear(8, 16));
  nn::Linear down = register_module("down", nn::Linear(16, 8));
  Tensor forward(const Tensor& x) override { return down(gelu(up(x))); }
};

struct TransformerLayer : nn::Module {
  nn::LayerNorm attention_norm = register_module("attention_norm", nn::LayerNorm(8));
  nn::ModuleHolder<TransformerAttention> attention =
      register_module("attention", nn::ModuleHolder<TransformerAttention>());
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(8));
  nn::ModuleHolder<FeedForward> feed_forward =
      register_module("feed_forward", nn::ModuleHolder<FeedForward>());
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attention(attention_norm(x));
    return y + feed_forward(norm(y));
  }
};

struct Transformer : nn::Module {
  nn::Embedding tokens = register_module("tokens", nn::Embedding(8, 8));
  nn::Embedding places = register_module("places", nn::Embedding(8, 8));
  nn::ModuleList layers = register_module(
      "layers",
      nn::ModuleList(std::make_shared<TransformerLayer>(), std::make_shared<TransformerLayer>()));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(8));
  nn::Linear head = register_module("head", nn::Linear(8, 8, {.bias = false}));
  Tensor forward(const Tensor& text) override {
    Tensor x = tokens(text) + places(arange(8).unsqueeze(0).expand(text.shape()).contiguous());
    for (nn::Module& layer : *layers) x = layer(x);
    return head(norm(x));
  }
};

std::shared_ptr<Transformer> made_transformer() {
  manual_seed(21);
  auto model = std::make_shared<Transformer>();
  model->to(tensors::DType::f64);
  return model;
}

Tensor transformer_loss(Transformer& model) {
  const Tensor text = randint(0, 8, {8, 8}, tensors::RandomKey{.seed = 4});
  const Tensor next = randint(0, 8, {64}, tensors::RandomKey{.seed = 5});
  return cross_entropy(flatten(model(text), 0, 1), next);
}

struct CountedStep {
  Counts forward, backward, optimizer;
};

/// Two ranks take a step; losses, gradients and weights are one rank's.
CountedStep counted(const ParallelPlan& plan) {
  const auto whole = made_transformer();
  transformer_loss(*whole).backward();
  CountedStep step;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made_transformer();
    parallelize(*model, mesh, plan);
    optim::AdamW optimizer(model->parameters());
    CommCounter counter;
    CountedStep found;
    const Tensor loss = transformer_loss(*model);
    found.forward = counter.get_comm_counts();
    counter.reset();
    loss.backward();
    found.backward = counter.get_comm_counts();
    expect_gradients(*model, *whole);
    counter.reset();
    optimizer.step();
    found.optimizer = counter.get_comm_counts();
    if (group.rank() == 0) step = found;
  });
  return step;
}

TEST(TransformerCountsTest, ColumnsThenRowsTalkAsOftenAsPyTorchs) {
  ParallelPlan plan = {{"tokens", Rowwise()},
                       {"places", Rowwise()},
                       {"layers.*.attention.query", Colwise()},
                       {"layers.*.attention.key", Colwise()},
                       {"layers.*.attention.value", Colwise()},
                       {"layers.*.attention.output", Rowwise()},
                       {"layers.*.feed_forward.up", Colwise()},
                       {"layers.*.feed_forward.down", Rowwise()},
                       {"head", Colwise({.output = Replicate()})}};
  const CountedStep each = counted(plan);
  EXPECT_EQ(each.forward, (Counts{{"all_reduce", 6}, {"all_gather", 1}}));
  // PyTorch: 9 sums. That of the head's input is as large as the head, which is gathered instead.
  EXPECT_EQ(each.backward, (Counts{{"all_reduce", 8}, {"all_gather", 1}}));
  EXPECT_TRUE(each.optimizer.empty());
  // Queries, keys and values of one tensor of the mesh: their gradients are added before the sum.
  plan.emplace_back("layers.*.attention", PrepareInput({.given = {Replicate()},
                                                        .wanted = {Replicate()},
                                                        .result = Result::distributed}));
  const CountedStep joined = counted(plan);
  EXPECT_EQ(joined.forward, each.forward);
  EXPECT_EQ(joined.backward, (Counts{{"all_reduce", 4}, {"all_gather", 1}}));
}

TEST(TransformerCountsTest, ACutSequenceTalksNoMoreThanPyTorchs) {
  const PrepareOptions gathered{
      .given = {Shard(1)}, .wanted = {Replicate()}, .result = Result::distributed};
  const CountedStep step = counted({{"tokens", Rowwise({.output = Shard(1)})},
                                    {"places", Rowwise({.output = Shard(1)})},
                                    {"layers.*.attention_norm", Sequence()},
                                    {"layers.*.attention", PrepareInput(gathered)},
                                    {"layers.*.attention.query", Colwise()},
                                    {"layers.*.attention.key", Colwise()},
                                    {"layers.*.attention.value", Colwise()},
                                    {"layers.*.attention.output", Rowwise({.output = Shard(1)})},
                                    {"layers.*.norm", Sequence()},
                                    {"layers.*.feed_forward", PrepareInput(gathered)},
                                    {"layers.*.feed_forward.up", Colwise()},
                                    {"layers.*.feed_forward.down", Rowwise({.output = Shard(1)})},
                                    {"norm", Sequence()},
                                    {"head", Colwise({.input = Shard(1), .output = Replicate()})}});
  EXPECT_EQ(step.forward, (Counts{{"reduce_scatter", 6}, {"all_gather", 6}}));
  // PyTorch: 5 and 6, one of which is the head's again, and in the optimizer 30 sums, three for
  // each parameter of a norm. Here each of those gradients is summed once, when it is complete.
  EXPECT_EQ(step.backward, (Counts{{"reduce_scatter", 4}, {"all_gather", 7}, {"all_reduce", 10}}));
  EXPECT_TRUE(step.optimizer.empty());
}

}  // namespace
}  // namespace dtrun::dtensor
