// context_parallel: attention of the whole sequence and its gradients, in both orders, on any
// number of ranks; the work of each rank; a model; and what it refuses.
#include "dtrun/dtensor/parallel/context_parallel.h"

#include <gtest/gtest.h>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

constexpr std::int64_t kLength = 24;

struct Inputs {
  Tensor query, key, value, gradient;
};
Inputs made_inputs(DType dtype, std::int64_t key_heads) {
  const auto made = [&](std::int64_t heads, std::int64_t size, std::uint64_t seed) {
    return randn({2, heads, kLength, size}, tensors::RandomKey{.seed = seed}).to(dtype);
  };
  return {made(4, 3, 1), made(key_heads, 3, 2), made(key_heads, 5, 3), made(4, 5, 4)};
}

TEST(ContextParallelTest, RingAttentionIsThatOfTheWholeSequence) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : 0.1;
    for (const bool causal : {false, true}) {
      for (const std::int64_t key_heads : {4, 2}) {
        const AttentionOptions attention{.is_causal = causal, .enable_gqa = key_heads != 4};
        const Inputs in = made_inputs(dtype, key_heads);
        const Tensor query = leaf(in.query), key = leaf(in.key), value = leaf(in.value);
        const Tensor whole = scaled_dot_product_attention(query, key, value, attention);
        whole.backward(in.gradient);
        for (const int ranks : {1, 2, 3, 4}) {
          for (const SequenceOrder order : {SequenceOrder::balanced, SequenceOrder::contiguous}) {
            test::run_ranks(ranks, [&](const ProcessGroup& group) {
              const DeviceMesh mesh(group, {ranks}, {"cp"});
              const auto part = [&](const Tensor& a) {
                return context_shard(a, mesh, 2, {.order = order});
              };
              const Tensor q = leaf(part(in.query)), k = leaf(part(in.key)),
                           v = leaf(part(in.value));
              const Tensor found = ring_attention(q, k, v, mesh, attention, {.order = order});
              EXPECT_EQ(found.dtype(), dtype);
              expect_near(found, part(whole.detach()), "output", tolerance);
              found.backward(part(in.gradient));
              expect_near(q.grad(), part(query.grad()), "query", tolerance);
              expect_near(k.grad(), part(key.grad()), "key", tolerance);
              expect_near(v.grad(), part(value.grad()), "value", tolerance);
            });
          }
        }
      }
    }
  }
}

TEST(ContextParallelTest, KeysAndValuesGoRoundOnceAndTheirGradientsComeHome) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3}, {"cp"});
    const Tensor q = leaf(randn({1, 2, 4, 3}));
    CommCounter forward;
    const Tensor found = ring_attention(q, q, q, mesh, {.is_causal = true});
    EXPECT_EQ(forward.by_collective().at("send").calls, 4);
    CommCounter backward;
    sum(found).backward();
    EXPECT_EQ(backward.by_collective().at("send").calls, 4 + 6);
  });
}

TEST(ContextParallelTest, PartsOfASequenceAreItsPositionsAndComeTogetherAgain) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"cp"});
    const std::vector<std::vector<double>> balanced{{0, 1, 6, 7}, {2, 3, 4, 5}};
    const auto rank = static_cast<std::size_t>(group.rank());
    EXPECT_EQ(context_positions(mesh, 8).to_vector(), balanced[rank]);
    const Tensor whole = arange(16).reshape({2, 8});
    for (const SequenceOrder order : {SequenceOrder::balanced, SequenceOrder::contiguous}) {
      const Tensor part = context_shard(whole, mesh, -1, {.order = order});
      EXPECT_EQ(part.shape(), (Shape{2, 4}));
      EXPECT_EQ(context_unshard(part, mesh, -1, {.order = order}).to_vector(), whole.to_vector());
    }
  });
}

/// Tokens and where they stand, to scores.
struct CausalReader : nn::Module {
  nn::Embedding table = register_module("table", nn::Embedding(11, 8));
  nn::Embedding places = register_module("places", nn::Embedding(8, 8));
  nn::Linear qkv = register_module("qkv", nn::Linear(8, 24));
  nn::Linear head = register_module("head", nn::Linear(8, 5));
  Tensors forward_all(const Tensors& inputs) override {
    const Tensor x = table(inputs[0]) + places(inputs[1]);
    const auto attend = [this](const Tensor& y) {
      const Tensors parts = split(unflatten(qkv(y), -1, {2, 12}).transpose(1, 2), 4, -1);
      return flatten(scaled_dot_product_attention(parts[0], parts[1], parts[2], {.is_causal = true})
                         .transpose(1, 2),
                     2);
    };
    return {head(x + attend(x))};
  }
};

TEST(ContextParallelTest, AModelTrainsAsOnOneRank) {
  const auto made = [] {
    manual_seed(3);
    const auto model = std::make_shared<CausalReader>();
    model->to(DType::f64);
    return model;
  };
  const Tensor tokens = randint(0, 11, {4, 8}, tensors::RandomKey{.seed = 4});
  const Tensor targets = randint(0, 5, {4, 8}, tensors::RandomKey{.seed = 5});
  const auto loss_of_part = [](nn::Module& model, const Tensor& x, const Tensor& at,
                               const Tensor& y) {
    return cross_entropy(flatten(model(x, at), 0, 1), flatten(y));
  };
  const auto whole = made();
  const Tensor expected = loss_of_part(*whole, tokens, arange(8), targets);
  expected.backward();
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "cp"});
    const auto model = made();
    context_parallel(*model, mesh["cp"]);
    data_parallel(*model, mesh[{"dp", "cp"}].flatten());
    const auto part = [&](const Tensor& a) {
      return context_shard(a.narrow(0, 2 * mesh.local_rank("dp"), 2), mesh["cp"], 1);
    };
    loss_of_part(*model, part(tokens), context_positions(mesh["cp"], 8), part(targets)).backward();
    expect_gradients(*model, *whole);
  });
}

TEST(ContextParallelTest, ARecomputedModuleTalksToTheOthersAgain) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"cp"});
    struct Attend : nn::Module {
      Tensor forward(const Tensor& x) override {
        return scaled_dot_product_attention(x, x, x, {.is_causal = true});
      }
    };
    struct Around : nn::Module {
      std::shared_ptr<Attend> inner = register_module("inner", std::make_shared<Attend>());
      Tensor forward(const Tensor& x) override {
        return checkpoint([this](const Tensor& y) { return (*inner)(y); }, x);
      }
    };
    Around module;
    context_parallel(module, mesh);
    const Tensor whole = randn({1, 8, 3}, tensors::RandomKey{.seed = 8});
    const Tensor x = leaf(context_shard(whole, mesh, 1)), y = leaf(context_shard(whole, mesh, 1));
    sum(module(x)).backward();
    sum(ring_attention(y, y, y, mesh, {.is_causal = true})).backward();
    expect_near(x.grad(), y.grad(), "x", 0);
  });
}

TEST(ContextParallelTest, ARecomputedPartOfAForwardTalksToTheOthersAgain) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"cp"});
    struct Attend : nn::Module {
      Tensor forward(const Tensor& x) override {
        // No module's hooks stand around it in backward.
        return checkpoint(
            [](const Tensor& y) {
              return scaled_dot_product_attention(y, y, y, {.is_causal = true});
            },
            x);
      }
    } module;
    context_parallel(module, mesh);
    const Tensor whole = randn({1, 8, 3}, tensors::RandomKey{.seed = 8});
    const Tensor x = leaf(context_shard(whole, mesh, 1)), y = leaf(context_shard(whole, mesh, 1));
    sum(module(x)).backward();
    sum(ring_attention(y, y, y, mesh, {.is_causal = true})).backward();
    expect_near(x.grad(), y.grad(), "x", 0);
  });
}

TEST(ContextParallelTest, AForwardThatAnotherHookRefusesLeavesAttentionAsItIs) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"cp"});
    struct Attend : nn::Module {
      Tensor forward(const Tensor& x) override { return scaled_dot_product_attention(x, x, x); }
    } module;
    bool refuses = true;
    module.register_forward_pre_hook([&](nn::Module&, const Tensors&) -> Tensors {
      if (refuses) throw std::runtime_error("the hook's own");
      return {};
    });
    context_parallel(module, mesh);
    const Tensor x = randn({1, 4, 3}, tensors::RandomKey{.seed = 8});
    for (int i = 0; i < 3; ++i) {
      refuses = true;
      EXPECT_THROW(module(x), std::runtime_error);
      const CommCounter alone;
      scaled_dot_product_attention(x, x, x);
      EXPECT_EQ(alone.get_total_counts(), 0);
      refuses = false;
      expect_near(module(x), ring_attention(x, x, x, mesh), "ring", 0);
    }
  });
}

TEST(ContextParallelTest, PartsThatDoNotFitAreRefusedOnAllRanks) {
  const auto all = test::run_failing_ranks(
      2, {.timeout = std::chrono::seconds(20)}, [](const ProcessGroup& group) {
        const DeviceMesh mesh(group, {2}, {"cp"});
        const Tensor q = randn({1, 4, 3}), k = randn({1, 4 + 2 * group.rank(), 3});
        ring_attention(q, k, k, mesh);
      });
  for (const auto& thrown : all) {
    ASSERT_TRUE(thrown);
    EXPECT_EQ(thrown->code, base::ErrorCode::kDisagreement) << thrown->text;
  }
}

TEST(ContextParallelTest, ModelsThatDifferAreToldOnAllRanks) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"cp"});
    const nn::Linear other(4, 2 + group.rank());
    expect_refused([&] { context_parallel(*other, mesh); },
                   {"the ranks' modules differ", "rank 0 has parameter \"weight\", f32[2, 4]",
                    "rank 1 has parameter \"weight\", f32[3, 4]"},
                   base::ErrorCode::kDisagreement);
    const nn::Linear same(4, 2);
    const SequenceOrder order =
        group.rank() == 0 ? SequenceOrder::balanced : SequenceOrder::contiguous;
    expect_refused([&] { context_parallel(*same, mesh, {.order = order}); },
                   {"rank 0 has order balanced", "rank 1 has order contiguous"},
                   base::ErrorCode::kDisagreement);
  });
}

TEST(ContextParallelTest, WhatTheRingCannotDoIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"cp"});
    const Tensor q = randn({1, 4, 3}), odd = randn({1, 3, 3});
    expect_refused([&] { ring_attention(q, q, q, mesh, {.attn_mask = ones(4, 4)}); },
                   "with a mask");
    expect_refused([&] { ring_attention(q, q, q, mesh, {.dropout_p = 0.5}); }, "dropout");
    expect_refused([&] { ring_attention(odd, odd, odd, mesh, {.is_causal = true}); },
                   {"3 queries and 3 keys", "two equal chunks"});
    expect_refused([&] { context_shard(arange(6), mesh, 0); }, {"6 positions", "pad it to 8"});
    const Tensor on_mesh = distribute_tensor(q, mesh, {Replicate()});
    expect_refused([&] { ring_attention(on_mesh, q, q, mesh); }, "of distributed tensors");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
