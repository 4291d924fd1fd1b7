// How often a transformer under tensor and sequence parallelism talks: PyTorch's exact counts are
// the most that is allowed (test_tp_examples.py: two layers, eight samples of eight tokens).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

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

/// How many collectives those are.
std::int64_t total(const Counts& counts) {
  std::int64_t all = 0;
  for (const auto& [collective, times] : counts) all += times;
  return all;
}

/// Parameters of other names want no gradients. Empty: all want them.
void thaw(nn::Module& module, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::size_t found = 0;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const bool is_thawed = std::ranges::find(names, name) != names.end();
    Tensor(parameter).requires_grad_(is_thawed);
    found += is_thawed ? 1 : 0;
  }
  EXPECT_EQ(found, names.size());
}

/// Two ranks take a step; losses, gradients and weights are one rank's.
CountedStep counted(const ParallelPlan& plan, const std::vector<std::string>& thawed = {}) {
  const auto whole = made_transformer();
  thaw(*whole, thawed);
  transformer_loss(*whole).backward();
  CountedStep step;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made_transformer();
    parallelize(*model, mesh, plan);
    thaw(*model, thawed);
    Tensors trained = model->parameters();
    std::erase_if(trained, [](const Tensor& parameter) { return !parameter.requires_grad(); });
    optim::AdamW optimizer(trained);
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
  // All together are as many.
  EXPECT_LE(total(each.backward), 9);
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

ParallelPlan cut_sequence() {
  const PrepareOptions gathered{
      .given = {Shard(1)}, .wanted = {Replicate()}, .result = Result::distributed};
  return {{"tokens", Rowwise({.output = Shard(1)})},
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
          {"head", Colwise({.input = Shard(1), .output = Replicate()})}};
}

TEST(TransformerCountsTest, ACutSequenceTalksNoMoreThanPyTorchs) {
  const CountedStep step = counted(cut_sequence());
  EXPECT_EQ(step.forward, (Counts{{"reduce_scatter", 6}, {"all_gather", 6}}));
  // PyTorch: 5 and 6, one of which is the head's again, and in the optimizer 30 sums, three for
  // each parameter of a norm. Here each of those gradients is summed once, when it is complete.
  EXPECT_EQ(step.backward, (Counts{{"reduce_scatter", 4}, {"all_gather", 7}, {"all_reduce", 10}}));
  EXPECT_LE(total(step.backward), 5 + 6 + 30);
  EXPECT_TRUE(step.optimizer.empty());
}

// test_transformer_req_grad. PyTorch's counts are of backward and of the optimizer's step, which
// sums the norms' gradients there.
TEST(TransformerCountsTest, FrozenParametersCostNoMoreThanPyTorchs) {
  struct Frozen {
    std::vector<std::string> thawed;
    Counts backward;
    std::int64_t pytorchs;  ///< all collectives
  };
  const std::vector<std::string> ends = {"tokens.weight", "head.weight"};
  const std::vector<std::string> with_norm = {"tokens.weight", "head.weight", "norm.weight",
                                              "norm.bias"};
  std::vector<std::string> with_layers_norm = with_norm;
  with_layers_norm.insert(with_layers_norm.end(), {"layers.1.norm.weight", "layers.1.norm.bias"});
  const std::vector<std::string> here_and_there = {
      "tokens.weight",      "layers.0.attention.value.weight",   "layers.0.feed_forward.up.bias",
      "layers.1.norm.bias", "layers.1.feed_forward.down.weight", "head.weight"};
  for (const Frozen& one : std::vector<Frozen>{
           {{"head.weight", "norm.weight", "norm.bias"},
            {{"all_gather", 1}, {"all_reduce", 2}},
            1 + 6},
           {ends, {{"all_gather", 6}, {"reduce_scatter", 4}}, 5 + 5},
           {with_norm, {{"all_gather", 6}, {"reduce_scatter", 4}, {"all_reduce", 2}}, 5 + 5 + 6},
           {with_layers_norm,
            {{"all_gather", 6}, {"reduce_scatter", 4}, {"all_reduce", 4}},
            5 + 5 + 12},
           {here_and_there,
            {{"all_gather", 6}, {"reduce_scatter", 4}, {"all_reduce", 1}},
            5 + 5 + 3}}) {
    SCOPED_TRACE(testing::PrintToString(one.thawed));
    const CountedStep step = counted(cut_sequence(), one.thawed);
    EXPECT_EQ(step.forward, (Counts{{"reduce_scatter", 6}, {"all_gather", 6}}));
    EXPECT_EQ(step.backward, one.backward);
    EXPECT_TRUE(step.optimizer.empty());
    EXPECT_LE(total(step.backward), one.pytorchs);
  }
}

/// Forward and backward of a model as test_mlp_training has it.
Counts counted_mlp(bool cuts_rows) {
  const auto made = [] {
    manual_seed(21);
    nn::Sequential model{nn::Linear(10, 16), nn::ReLU(), nn::Linear(16, 10)};
    model->to(tensors::DType::f64);
    return model;
  };
  const Tensor x = randn({8, 10}, tensors::RandomKey{.seed = 4}).to(tensors::DType::f64);
  const auto whole = made();
  sum(whole(x)).backward();
  Counts counts;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto model = made();
    const StyleOptions in = cuts_rows ? StyleOptions{.input = Shard(0)} : StyleOptions{};
    const StyleOptions out = cuts_rows ? StyleOptions{.output = Shard(0)} : StyleOptions{};
    parallelize(*model, mesh, {{"0", Colwise(in)}, {"2", Rowwise(out)}});
    const CommCounter counter;
    sum(model(cuts_rows ? x.narrow(0, group.rank() * 4, 4) : x)).backward();
    const Counts found = counter.get_comm_counts();
    expect_gradients(*model, *whole);
    if (group.rank() == 0) counts = found;
  });
  return counts;
}

TEST(TransformerCountsTest, TwoLayersTalkAsOftenAsPyTorchs) {
  EXPECT_EQ(counted_mlp(false), (Counts{{"all_reduce", 1}}));
  EXPECT_EQ(counted_mlp(true), (Counts{{"all_gather", 2}, {"reduce_scatter", 1}}));
}

/// As test_weight_tying has it.
struct TableAndHead : nn::Module {
  explicit TableAndHead(bool is_tied)
      : head(register_module(
            "head", is_tied ? nn::Linear(table->weight) : nn::Linear(8, 16, {.bias = false}))) {}
  nn::Embedding table = register_module("table", nn::Embedding(16, 8));
  nn::Linear head;
  Tensor forward(const Tensor& text) override { return head(table(text)); }
};

TEST(TransformerCountsTest, AHeadThatIsTheTableTalksNoMoreThanOneOfItsOwn) {
  for (const bool is_tied : {false, true}) {
    const auto made = [&] {
      manual_seed(21);
      const auto model = std::make_shared<TableAndHead>(is_tied);
      model->to(tensors::DType::f64);
      return model;
    };
    const Tensor text = randint(0, 16, {5}, tensors::RandomKey{.seed = 4});
    const auto whole = made();
    EXPECT_EQ(whole->parameters().size(), is_tied ? 1U : 2U);
    sum(square((*whole)(text))).backward();
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2}, {"tp"});
      const auto model = made();
      parallelize(*model, mesh, {{"table", Colwise()}, {"head", Rowwise()}});
      const CommCounter counter;
      sum(square((*model)(text))).backward();
      EXPECT_EQ(counter.get_comm_counts(), (Counts{{"all_reduce", 1}}));
      expect_gradients(*model, *whole);
    });
  }
}

}  // namespace
}  // namespace dtrun::dtensor
