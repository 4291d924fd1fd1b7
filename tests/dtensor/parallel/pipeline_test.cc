// Pipeline: gradients of one rank for every order, number of ranks and way to cut a model; together
// with the other axes; and what it refuses.
#include "dtrun/dtensor/parallel/pipeline.h"

#include <gtest/gtest.h>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

nn::Sequential made_layers(std::uint64_t seed = 21, int blocks = 4) {
  manual_seed(seed);
  nn::Sequential layers;
  layers->push_back(nn::Embedding(11, 8));
  for (int i = 0; i < blocks; ++i) layers->push_back(std::make_shared<Block>());
  layers->push_back(nn::Linear(8, 5, {.bias = false}));
  layers->to(tensors::DType::f64);
  return layers;
}

Tensor loss_of_scores(const Tensor& scores, const Tensor& targets) {
  return cross_entropy(flatten(scores, 0, 1), targets);
}

/// Of 12 samples.
Tensor one_rank_loss(nn::Module& model) {
  return loss_of_scores(model(made_tokens(12)), made_targets(12));
}

/// Gradients of the layers that this rank has.
void expect_layer_gradients(const nn::Module& own, const nn::Module& whole) {
  for (const auto& [name, parameter] : own.named_parameters())
    expect_near(parameter.grad(), whole.get_parameter(name).grad(), name);
}

struct Case {
  PipelineOrder order;
  int ranks;
  int stages_per_rank;
  int microbatches;
};

TEST(PipelineTest, EveryOrderGivesTheGradientsOfOneRank) {
  const nn::Sequential whole = made_layers();
  const Tensor expected = one_rank_loss(*whole);
  expected.backward();
  for (const auto& [order, ranks, stages, microbatches] :
       {Case{PipelineOrder::gpipe, 1, 1, 3}, Case{PipelineOrder::gpipe, 2, 1, 4},
        Case{PipelineOrder::gpipe, 3, 2, 5}, Case{PipelineOrder::one_f_one_b, 1, 3, 4},
        Case{PipelineOrder::one_f_one_b, 2, 1, 1}, Case{PipelineOrder::one_f_one_b, 2, 1, 12},
        Case{PipelineOrder::one_f_one_b, 4, 1, 7}, Case{PipelineOrder::one_f_one_b, 2, 3, 6},
        Case{PipelineOrder::one_f_one_b, 3, 2, 3}}) {
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"pp"});
      Pipeline pipeline(made_layers(), mesh,
                        {.microbatches = microbatches,
                         .order = order,
                         .stages_per_rank = stages,
                         .loss = loss_of_scores});
      EXPECT_EQ(pipeline.stages().size(), static_cast<std::size_t>(stages));
      for (int i = 0; i < 2; ++i) {
        pipeline.model()->zero_grad();
        const Tensor loss = pipeline.step(made_tokens(12), made_targets(12));
        EXPECT_NEAR(loss.item(), expected.item(), 1e-12);
        expect_layer_gradients(*pipeline.model(), *whole);
      }
    });
  }
}

TEST(PipelineTest, TheLayersOfAllRanksAreTheModelsUnderTheirNames) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3}, {"pp"});
    const nn::Sequential model = made_layers();
    const Pipeline pipeline(model, mesh, {.split_before = {2, 5}});
    const std::vector<std::vector<std::string>> expected{{"0", "1"}, {"2", "3", "4"}, {"5"}};
    std::vector<std::string> names;
    for (const auto& [name, child] : pipeline.model()->named_children()) names.push_back(name);
    EXPECT_EQ(names, expected[static_cast<std::size_t>(group.rank())]);
    for (const auto& [name, parameter] : pipeline.model()->named_parameters())
      EXPECT_TRUE(same(parameter, model->get_parameter(name))) << name;
  });
}

TEST(PipelineTest, EvaluationAndForwardGiveEveryRankWhatTheLastStageFinds) {
  const nn::Sequential whole = made_layers();
  const NoGrad no_grad;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"pp"});
    Pipeline pipeline(made_layers(), mesh, {.microbatches = 4, .loss = loss_of_scores});
    const NoGrad none;
    EXPECT_NEAR(pipeline.evaluate(made_tokens(12), made_targets(12)).item(),
                one_rank_loss(*whole).item(), 1e-12);
    // Fewer samples than microbatches, then shapes of other lengths.
    for (const std::int64_t samples : {1, 3, 7}) {
      const Tensor scores = pipeline.forward(made_tokens(samples));
      EXPECT_FALSE(scores.requires_grad());
      expect_near(scores, (*whole)(made_tokens(samples)), std::to_string(samples));
    }
    EXPECT_FALSE(pipeline.model()->parameters()[0].grad().defined());
  });
}

TEST(PipelineTest, AStepSendsEachActivationAndEachGradientOnce) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"pp"});
    Pipeline pipeline(made_layers(), mesh, {.microbatches = 3, .loss = loss_of_scores});
    pipeline.step(made_tokens(12), made_targets(12));
    CommCounter counter;
    pipeline.step(made_tokens(12), made_targets(12));
    const CommCounts counts = counter.by_collective();
    EXPECT_EQ(counts.at("send").calls, 3);
    EXPECT_EQ(counts.at("recv").calls, 3);
    EXPECT_EQ(counts.at("broadcast").calls, 1);
    EXPECT_EQ(counts.size(), 3U);
  });
}

TEST(PipelineTest, FrozenStagesGetNoGradients) {
  const nn::Sequential whole = made_layers();
  whole->at(0).requires_grad_(false);
  whole->at(1).requires_grad_(false);
  one_rank_loss(*whole).backward();
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3}, {"pp"});
    const nn::Sequential model = made_layers();
    model->at(0).requires_grad_(false);
    model->at(1).requires_grad_(false);
    Pipeline pipeline(model, mesh,
                      {.microbatches = 4, .loss = loss_of_scores, .split_before = {2, 3}});
    for (int i = 0; i < 2; ++i) {
      pipeline.model()->zero_grad();
      pipeline.step(made_tokens(12), made_targets(12));
      expect_layer_gradients(*pipeline.model(), *whole);
    }
    CommCounter counter;
    pipeline.step(made_tokens(12), made_targets(12));
    const CommCounts counts = counter.by_collective();
    EXPECT_EQ(counts.contains("recv") ? counts.at("recv").calls : 0,
              std::vector<std::int64_t>({0, 8, 4})[static_cast<std::size_t>(group.rank())]);
  });
}

TEST(PipelineTest, WithDataParallelEachGradientIsReducedOnceABatch) {
  const nn::Sequential whole = made_layers();
  one_rank_loss(*whole).backward();
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "pp"});
    Pipeline pipeline(made_layers(), mesh["pp"],
                      {.microbatches = 3, .loss = loss_of_scores, .data_parallel = mesh["dp"]});
    const std::int64_t first = 6 * mesh.local_rank("dp");
    const Tensor tokens = made_tokens(12).narrow(0, first, 6);
    const Tensor targets = made_targets(12).narrow(0, 4 * first, 24);
    for (int i = 0; i < 3; ++i) {
      pipeline.model()->zero_grad();
      CommCounter counter;
      pipeline.step(tokens, targets);
      EXPECT_EQ(counter.by_collective().at("all_reduce").calls, 1);
      expect_layer_gradients(*pipeline.model(), *whole);
    }
  });
}

TEST(PipelineTest, WithTensorParallelAndFullyShardedLayersGradientsAreOneRanks) {
  const nn::Sequential whole = made_layers();
  one_rank_loss(*whole).backward();
  for (const char* const other : {"tp", "fsdp"}) {
    test::run_ranks(4, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2, 2}, {"pp", other});
      const nn::Sequential model = made_layers();
      const bool cuts_layers = std::string(other) == "tp";
      if (cuts_layers)
        parallelize(*model, mesh["tp"], {{"*.up", Colwise()}, {"*.down", Rowwise()}});
      Pipeline pipeline(model, mesh["pp"], {.microbatches = 4, .loss = loss_of_scores});
      Tensor tokens = made_tokens(12), targets = made_targets(12);
      if (!cuts_layers) {
        for (const auto& stage : pipeline.stages()) fully_shard(*stage, mesh["fsdp"]);
        const std::int64_t first = 6 * mesh.local_rank("fsdp");
        tokens = tokens.narrow(0, first, 6);
        targets = targets.narrow(0, 4 * first, 24);
      }
      pipeline.step(tokens, targets);
      for (const auto& [name, parameter] : pipeline.model()->named_parameters()) {
        const Tensor grad = parameter.grad();
        expect_near(grad.is_distributed() ? grad.full_tensor() : grad,
                    whole->get_parameter(name).grad(), name);
      }
    });
  }
}

TEST(PipelineTest, TheNormOfAllStagesGradientsClipsThem) {
  const nn::Sequential whole = made_layers();
  one_rank_loss(*whole).backward();
  const double norm = optim::clip_grad_norm_(whole->parameters(), 0.1).item();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"pp"});
    Pipeline pipeline(made_layers(), mesh, {.loss = loss_of_scores});
    pipeline.step(made_tokens(12), made_targets(12));
    EXPECT_NEAR(
        optim::clip_grad_norm_(pipeline.model()->parameters(), 0.1, {.stages = mesh}).item(), norm,
        1e-12);
    expect_layer_gradients(*pipeline.model(), *whole);
  });
}

TEST(PipelineTest, StagesOfOnesOwnAreAnyModules) {
  const auto whole = made_layers(21, 2);
  one_rank_loss(*whole).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"pp"});
    const auto layers = made_layers(21, 2);
    const auto stage = std::make_shared<nn::SequentialModule>();
    for (int i = 2 * group.rank(); i < 2 * group.rank() + 2; ++i)
      stage->register_module(std::to_string(i),
                             layers->named_children()[static_cast<std::size_t>(i)].second);
    Pipeline pipeline =
        Pipeline::of_stages({stage}, mesh, {.microbatches = 2, .loss = loss_of_scores});
    pipeline.step(made_tokens(12), made_targets(12));
    expect_layer_gradients(*stage, *whole);
    EXPECT_EQ(pipeline.model()->named_children()[0].first, "0");
  });
}

TEST(PipelineTest, AfterABatchThatFailedThereIsNoOther) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    bool throws = true;
    Pipeline pipeline(made_layers(), DeviceMesh(group, {1}, {"pp"}),
                      {.microbatches = 2, .loss = [&](const Tensor& scores, const Tensor& targets) {
                         if (throws) throw std::runtime_error("no loss");
                         return loss_of_scores(scores, targets);
                       }});
    expect_refused([&] { pipeline.step(made_tokens(1), made_targets(1)); }, "a larger batch");
    EXPECT_THROW(pipeline.step(made_tokens(2), made_targets(2)), std::runtime_error);
    throws = false;
    expect_refused([&] { pipeline.step(made_tokens(2), made_targets(2)); },
                   "an earlier one has failed", base::ErrorCode::kUsage);
    expect_refused([&] { pipeline.forward(made_tokens(2)); }, "begins again",
                   base::ErrorCode::kUsage);
  });
}

TEST(PipelineTest, WhatCannotBeAPipelineIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"pp"});
    const nn::Sequential two = made_layers(21, 0);
    expect_refused([&] { Pipeline(two, mesh, {.stages_per_rank = 2}); },
                   {"4 stages of a model of 2 children", "fewer stages"});
    expect_refused([&] { Pipeline(made_layers(), mesh, {.split_before = {6}}); },
                   {"split_before [6]", "rising numbers from 1 to 5"});
    expect_refused([&] { Pipeline(two, mesh, {.microbatches = -1}); }, {"-1 microbatches"});
    expect_refused(
        [&] { Pipeline(made_layers(group.rank() == 0 ? 1 : 2, 2 + group.rank()), mesh); },
        "the ranks' modules differ", base::ErrorCode::kDisagreement);
    expect_refused([&] { Pipeline(group.rank() == 0 ? two : nn::Sequential(nn::ReLU()), mesh); },
                   "rank 1 has no more", base::ErrorCode::kDisagreement);
    expect_refused([&] { Pipeline(two, mesh, {.microbatches = 2 + group.rank()}); },
                   "the ranks' pipelines differ", base::ErrorCode::kDisagreement);
    Pipeline silent(two, mesh, {.microbatches = 2});
    expect_refused([&] { silent.step(made_tokens(2), made_targets(2)); }, "without a loss");
    Pipeline pipeline(two, mesh, {.microbatches = 4, .loss = loss_of_scores});
    expect_refused([&] { pipeline.step(made_tokens(3), made_targets(3)); },
                   {"3 samples for 4 microbatches", "a larger batch"});
    expect_refused([&] { pipeline.step(made_tokens(5), made_targets(4)); }, "targets of shape");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
