// What dropout drops in a model that ranks share: what one rank alone would drop.
#include <gtest/gtest.h>

#include "autograd/random_part.h"
#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/dtensor/parallel/context_parallel.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "dtrun/dtensor/parallel/pipeline.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

/// [samples, positions, 4]
struct Dropping : nn::Module {
  nn::Linear up = register_module("up", nn::Linear(4, 6));
  nn::Dropout hidden = register_module("hidden", nn::Dropout(0.3));
  nn::Linear down = register_module("down", nn::Linear(6, 4));
  nn::Dropout drop = register_module("drop", nn::Dropout(0.4));
  Tensor forward(const Tensor& x) override { return drop(down(hidden(up(drop(x))))); }
};

std::shared_ptr<Dropping> made_dropping() {
  manual_seed(5);
  auto model = std::make_shared<Dropping>();
  model->to(tensors::DType::f64);
  return model;
}

Tensor made_samples(std::int64_t samples) {
  return randn({samples, 8, 4}, tensors::RandomKey{.seed = 3}, {.dtype = tensors::DType::f64});
}

/// Of a second call, so that streams count.
Tensor second_output(nn::Module& model, const Tensor& x) {
  manual_seed(9);
  model(x);
  return model(x);
}

TEST(ParallelDropoutTest, RanksWithSamplesOfTheirOwnDropWhatOneRankDrops) {
  const Tensor x = made_samples(6), expected = second_output(*made_dropping(), x);
  test::run_ranks(6, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3, 2}, {"dp", "cp"});
    const Tensor rows = x.narrow(0, mesh.local_rank("dp") * 2, 2);
    const Tensor wanted = expected.narrow(0, mesh.local_rank("dp") * 2, 2);
    const auto replicated = made_dropping();
    data_parallel(*replicated, mesh["dp"]);
    expect_near(second_output(*replicated, rows), wanted, "data_parallel");
    const auto sharded = made_dropping();
    fully_shard(*sharded, mesh["dp"], {.units = {"*"}});
    expect_near(second_output(*sharded, rows), wanted, "fully_shard");
    // Ranks along cp have other positions of the same samples.
    for (const SequenceOrder order : {SequenceOrder::balanced, SequenceOrder::contiguous}) {
      const auto parts = made_dropping();
      context_parallel(*parts, mesh["cp"], {order});
      data_parallel(*parts, mesh.flatten());
      const auto shard = [&](const Tensor& whole) {
        return context_shard(whole, mesh["cp"], 1, {order});
      };
      expect_near(second_output(*parts, shard(rows)), shard(wanted), "context_parallel");
      const auto both = made_dropping();
      context_parallel(*both, mesh["cp"], {order});
      fully_shard(*both, mesh, {.units = {"*"}});
      expect_near(second_output(*both, shard(rows)), shard(wanted), "hybrid");
    }
  });
}

TEST(ParallelDropoutTest, FlattenedRowsAreThoseOfTheSamplesAndBackwardDropsTheSame) {
  const Tensor x = made_samples(4);
  const auto gradient = [](nn::Module& model, const Tensor& rows) {
    const Tensor input = leaf(flatten(rows, 0, 1));
    manual_seed(9);
    model(input).sum().backward();
    return input.grad();
  };
  const Tensor expected = gradient(*made_dropping(), x);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const auto model = made_dropping();
    data_parallel(*model, DeviceMesh(group, {2}));
    expect_near(gradient(*model, x.narrow(0, group.rank() * 2, 2)),
                expected.narrow(0, group.rank() * 16, 16), "gradient");
  });
}

TEST(ParallelDropoutTest, ARecomputedForwardDropsTheSameRowsAgainAndAKeyIsOfATensorAlone) {
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const auto model = made_dropping();
    struct Recomputing : nn::Module {
      std::shared_ptr<Dropping> inner;
      Tensor forward(const Tensor& x) override {
        return checkpoint([this](const Tensor& a) { return inner->drop(a); }, x);
      }
    } outer;
    outer.inner = outer.register_module("inner", model);
    data_parallel(outer, DeviceMesh(group, {2}));
    struct Keyed : nn::Module {
      nn::Linear linear = register_module("linear", nn::Linear(4, 4));
      Tensor forward(const Tensor& x) override {
        return dropout(x, {.key = tensors::RandomKey{.seed = 4}});
      }
    } keyed;
    data_parallel(keyed, DeviceMesh(group, {2}));
    EXPECT_TRUE(
        equal(keyed(ones({9})), dropout(ones({9}), {.key = tensors::RandomKey{.seed = 4}})));
    const Tensor x = ones({2, 500}, {.dtype = tensors::DType::f64}).requires_grad_();
    const Tensor y = outer(x);
    y.sum().backward();
    EXPECT_TRUE(equal(x.grad(), y));
  });
}

TEST(ParallelDropoutTest, APlanTellsHowADroppedTensorIsCut) {
  const Tensor x = made_samples(2), expected = second_output(*made_dropping(), x);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const auto columns = made_dropping();
    const PrepareOptions cut{.given = {Shard(-1)}, .wanted = {Shard(-1)}};
    PrepareOptions before = cut;
    before.result = Result::distributed;
    parallelize(
        *columns, mesh,
        {{"up", Colwise()}, {"down", Rowwise()}, {"hidden", PrepareInputOutput(before, cut)}});
    expect_near(second_output(*columns, x), expected, "columns");
    const auto rows = made_dropping();
    const StyleOptions along{.input = Shard(1), .output = Shard(1)};
    parallelize(*rows, mesh,
                {{"up", Sequence(along)},
                 {"down", Sequence(along)},
                 {"hidden", Sequence()},
                 {"drop", Sequence()}});
    expect_near(second_output(*rows, x.narrow(1, group.rank() * 4, 4)),
                expected.narrow(1, group.rank() * 4, 4), "sequence");
  });
}

/// The layers drop several times each; one by a call that is no module.
nn::Sequential made_stages() {
  manual_seed(5);
  nn::Sequential model;
  for (int i = 0; i < 3; ++i) model->push_back(std::make_shared<Dropping>());
  model->push_back(nn::MultiheadAttention(4, 2, {.dropout = 0.2, .batch_first = true}));
  model->to(tensors::DType::f64);
  return model;
}

Tensor mean_square(const Tensor& output, const Tensor& target) {
  return (output - target).pow(2).mean();
}

TEST(ParallelDropoutTest, StagesOfAPipelineDropWhatOneRankDrops) {
  const nn::Sequential whole = made_stages();
  const Tensor x = made_samples(12), targets = x * 2;
  manual_seed(9);
  // Two steps of two batches.
  std::vector<double> expected;
  for (int step = 0; step < 2; ++step) {
    double loss = 0;
    for (int batch = 0; batch < 2; ++batch) {
      const Tensor part =
          mean_square((*whole)(x.narrow(0, batch * 6, 6)), targets.narrow(0, batch * 6, 6)) * 0.5;
      part.backward();
      loss += part.item();
    }
    expected.push_back(loss);
  }
  const RandomState after = random_state();
  EXPECT_EQ(after.calls, 4U * 10U);
  for (const auto& [ranks, stages, microbatches] :
       {std::tuple{1, 2, 2}, std::tuple{2, 1, 4}, std::tuple{2, 2, 8}, std::tuple{4, 1, 12}}) {
    SCOPED_TRACE(ranks);
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      Pipeline pipeline(made_stages(), DeviceMesh(group, {ranks}),
                        {.microbatches = microbatches,
                         .accumulated = 2,
                         .stages_per_rank = stages,
                         .loss = mean_square});
      manual_seed(9);
      pipeline.forward(x);
      EXPECT_EQ(random_state().calls, 0U);
      for (const double loss : expected) EXPECT_NEAR(pipeline.step(x, targets).item(), loss, 1e-12);
      EXPECT_EQ(random_state(), after);
      for (const auto& [name, parameter] : pipeline.model()->named_parameters())
        expect_near(parameter.grad(), whole->get_parameter(name).grad(), name);
    });
  }
}

TEST(ParallelDropoutTest, StagesThatDropInFunctionsLeaveTheStateOfOneRank) {
  struct Function : nn::Module {
    Tensor forward(const Tensor& x) override { return dropout(x) + dropout(x, {.p = 0.2}); }
  };
  test::run_ranks(2, [](const ProcessGroup& group) {
    nn::Sequential model;
    for (int i = 0; i < 2; ++i) model->push_back(std::make_shared<Function>());
    Pipeline pipeline(model, DeviceMesh(group, {2}), {.microbatches = 3, .loss = mean_square});
    const Tensor x = made_samples(6);
    for (const std::uint64_t calls : {4, 8}) {
      pipeline.step(x, x);
      EXPECT_EQ(random_state().calls, calls);
    }
  });
}

TEST(ParallelDropoutTest, BatchesThatMicrobatchesOrSamplesDoNotDivideIntoAreRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto made = [&](int microbatches) {
      return Pipeline(made_stages(), mesh,
                      {.microbatches = microbatches, .accumulated = 2, .loss = mean_square});
    };
    expect_refused([&] { made(3); }, "3 microbatches of 2 batches");
    Pipeline pipeline = made(4);
    const Tensor x = made_samples(7);
    expect_refused([&] { pipeline.step(x, x); }, "7 samples of 2 batches");
  });
}

TEST(ParallelDropoutTest, PartsWithinPartsLieWhereTheyWouldInTheWhole) {
  using Level = RandomPart::Level;
  const auto runs = [](const RandomPart::Extent& extent) {
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    for (const auto& [first, count] : extent.runs) found.emplace_back(first, count);
    return found;
  };
  using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;
  // The first and the last quarter of 16, of which [1, 7) are here.
  const RandomPart balanced(Level::positions, {0, 3}, 1, 4, {0, 1});
  const RandomPart::Extent extent = balanced.around({8, {{1, 6}}});
  EXPECT_EQ(extent.size, 16);
  EXPECT_EQ(runs(extent), (Runs{{1, 3}, {12, 3}}));
  // 2 of 6 samples from the third on, of 5 rows each.
  const RandomPart microbatch(Level::microbatch, {2}, 2, 6, {});
  EXPECT_EQ(runs(microbatch.around({10, {{0, 10}}})), (Runs{{10, 10}}));
  EXPECT_EQ(microbatch.around({10, {{0, 10}}}).size, 30);
  // A dim that is no multiple: within a place of its own.
  EXPECT_EQ(runs(balanced.around({5, {{0, 5}}})), (Runs{{0, 3}, {9, 2}}));
}

}  // namespace
}  // namespace dtrun::dtensor
