// ZeroRedundancyOptimizer: weights of one rank, states in parts, one gather a step.
#include "dtrun/dtensor/parallel/zero_redundancy_optimizer.h"

#include <gtest/gtest.h>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/optim/lr_scheduler.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

std::unique_ptr<optim::Optimizer> made_adamw(const Tensors& parameters) {
  return std::make_unique<optim::AdamW>(parameters,
                                        optim::AdamWOptions{.lr = 0.05, .weight_decay = 0.1});
}

const Reader& reader_of_one_rank() {
  static const std::shared_ptr<Reader> kModel = [] {
    const auto model = made_reader();
    const auto optimizer = made_adamw(model->parameters());
    optim::StepLR schedule(*optimizer, 1, 0.5);
    for (int i = 0; i < 3; ++i) {
      optimizer->zero_grad();
      loss_of(*model, 0, 12).backward();
      optim::clip_grad_norm_(model->parameters(), 0.5);
      optimizer->step();
      schedule.step();
    }
    return model;
  }();
  return *kModel;
}

void expect_trains_with_parts(Reader& model, ZeroRedundancyOptimizer& optimizer,
                              const ProcessGroup& samples) {
  optim::StepLR schedule(optimizer.inner(), 1, 0.5);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    part_of_loss(model, samples).backward();
    optim::clip_grad_norm_(model.parameters(), 0.5);
    const CommCounter counter;
    optimizer.step();
    EXPECT_EQ(counter.get_comm_counts(),
              (std::map<std::string, std::int64_t>{{"all_gather", samples.size() > 1 ? 1 : 0}}));
    schedule.step();
  }
  const auto found = model.named_parameters(), expected = reader_of_one_rank().named_parameters();
  for (std::size_t i = 0; i < found.size(); ++i)
    expect_near(found[i].second, expected[i].second, found[i].first, 1e-10);
}

TEST(ZeroRedundancyOptimizerTest, ItTrainsAsOneRankAndKeepsStatesInParts) {
  for (const int ranks : {2, 3, 4}) {  // not all divide 11, 8, 12 and 5 rows
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {ranks}, {"dp"});
      const auto model = made_reader();
      data_parallel(*model, mesh);
      ZeroRedundancyOptimizer optimizer(model->parameters(), mesh, made_adamw);
      expect_trains_with_parts(*model, optimizer, group);
      EXPECT_FALSE(model->table->weight.is_distributed());
      const nn::StateDict state = optimizer.inner().state_dict();
      std::int64_t elements = 0;
      for (const auto& [name, tensor] : state) {
        if (tensor.dim() == 0) continue;
        EXPECT_EQ(tensor.placements(), Placements{Shard(0)}) << name;
        elements += tensor.local().numel();
      }
      std::int64_t whole = 0;
      for (const Tensor& parameter : model->parameters()) whole += 2 * parameter.numel();
      EXPECT_LT(elements, whole);
      const LocalTensor sum = tensors::full({}, elements, {DType::i64});
      group.all_reduce(sum);
      EXPECT_EQ(sum.item(), static_cast<double>(whole));
    });
  }
}

TEST(ZeroRedundancyOptimizerTest, WhatIsCutAlongAnotherAxisIsCutOnceMore) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    const auto model = made_reader();
    parallelize(*model, mesh["tp"], {{"blocks.*.up", Colwise()}, {"blocks.*.down", Rowwise()}});
    data_parallel(*model, mesh["dp"]);
    ZeroRedundancyOptimizer optimizer(model->parameters(), mesh["dp"], made_adamw);
    expect_trains_with_parts(*model, optimizer, mesh.group("dp"));
  });
}

TEST(ZeroRedundancyOptimizerTest, ItFollowsParametersThatAreLaidElsewhere) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const Tensor moved = ones({3, 2}), still = ones({2});
    moved.requires_grad_();
    const Tensors parameters{moved, still};
    ZeroRedundancyOptimizer optimizer(parameters, mesh, [](const Tensors& parts) {
      return std::make_unique<optim::SGD>(Tensors{parts[0]}, optim::SGDOptions{.lr = 1});
    });
    moved.set_data(full({3, 2}, 5));
    moved.set_grad(ones({3, 2}));
    optimizer.step();
    EXPECT_EQ(moved.to_vector(), std::vector<double>(6, 4));
    EXPECT_EQ(still.to_vector(), std::vector<double>(2, 1));
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_FALSE(moved.grad().defined());
    optimizer.step();
    EXPECT_EQ(moved.to_vector(), std::vector<double>(6, 3));
    moved.set_data(ones({4, 2}));
    expect_refused([&] { optimizer.step(); }, "the rows of parameter 0, f32[4, 2]",
                   base::ErrorCode::kUsage);
  });
}

TEST(ZeroRedundancyOptimizerTest, WhatCannotBeDoneIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"}), box(group, {1, 2}, {"tp", "dp"});
    const auto refused = [&](const Tensors& parameters, const DeviceMesh& on, const char* what) {
      expect_refused([&] { ZeroRedundancyOptimizer(parameters, on, made_adamw); }, what);
    };
    refused({ones({2})}, box, "which has 2 axes");
    refused({}, mesh, "of no parameters");
    refused({ones({2}), ones({})}, mesh, "of parameter 1, f32[]");
    refused({ones({2}, mesh, {Replicate()})}, mesh, "distributed over the ranks of this axis");
    expect_refused(
        [&] {
          ZeroRedundancyOptimizer({ones({2})}, mesh,
                                  [](const Tensors&) { return std::unique_ptr<optim::SGD>(); });
        },
        "the function made none");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
