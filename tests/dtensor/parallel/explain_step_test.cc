// explain_step: where parameters lie, what both ways send, and the memory of a rank.
#include "dtrun/dtensor/parallel/explain_step.h"

#include <gtest/gtest.h>

#include <sstream>

#include "dtensor/parallel/small_models.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

StepExplanation explained(Reader& model, const ProcessGroup& group) {
  Tensors trained;
  for (const Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  optim::AdamW optimizer(trained);
  part_of_loss(model, group).backward();  // which unit comes last is known then
  optimizer.step();
  optimizer.zero_grad();
  return explain_step(model, optimizer, [&] {
    part_of_loss(model, group).backward();
    optim::clip_grad_norm_(model.parameters(), 1);
    optimizer.step();
  });
}

TEST(ExplainStepTest, FullyShardIsExplainedByGathersForwardAndSumsBackward) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    model->blocks->at(1).as<Block>()->norm->requires_grad_(false);
    fully_shard(*model, mesh, {.units = {"blocks.*"}, .prefetch = 0});
    const StepExplanation plan = explained(*model, group);
    EXPECT_EQ(plan.forward.at("all_gather").calls, 3);
    EXPECT_EQ(plan.backward.at("all_gather").calls, 1);
    EXPECT_EQ(plan.backward.at("reduce_scatter").calls, 3);
    EXPECT_EQ(plan.backward.size(), 2U);
    EXPECT_EQ(plan.elsewhere.at("all_reduce").calls, 1);
    EXPECT_EQ(plan.elsewhere.size(), 1U);
    EXPECT_EQ(plan.modules.at("Reader.blocks.0").forward.at("all_gather").calls, 1);
    const ExplainedParameter& table = plan.parameters.front();
    EXPECT_EQ(table.name, "table.weight");
    EXPECT_EQ(table.shape, (Shape{11, 8}));
    EXPECT_EQ(table.layout, "[S(0)] on " + mesh.to_string());
    EXPECT_EQ(table.bytes_here, (group.rank() == 0 ? 6 : 5) * 8 * 8);
    EXPECT_EQ(table.bytes_whole, 11 * 8 * 8);
    std::int64_t here = 0, trained = 0;
    for (const ExplainedParameter& each : plan.parameters) {
      here += each.bytes_here;
      if (each.is_trained) trained += each.bytes_here;
    }
    EXPECT_EQ(plan.memory.parameters, here);
    EXPECT_EQ(plan.memory.gradients, trained);
    EXPECT_EQ(trained, here - 2 * 4 * 8);
    EXPECT_EQ(plan.memory.states, 2 * trained);
    // A block: norm, up and down.
    EXPECT_EQ(plan.memory.gathered, 8 * (8 + 8 + 12 * 8 + 12 + 8 * 12 + 8));
    EXPECT_GT(plan.resident_peak, 0);
    std::ostringstream text;
    text << plan;
    for (const char* const words :
         {"blocks.1.norm.weight", ", not trained", "all_gather 3 (", "reduce_scatter 3 (",
          "elsewhere", "states of the optimizer", "the whole process, at its most"})
      EXPECT_NE(text.str().find(words), std::string::npos) << words << "\n" << text.str();
  });
}

TEST(ExplainStepTest, DataParallelIsExplainedByOneSumABucket) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    data_parallel(*model, mesh);
    const StepExplanation plan = explained(*model, group);
    EXPECT_TRUE(plan.forward.empty());
    EXPECT_TRUE(plan.elsewhere.empty());
    EXPECT_EQ(plan.backward.at("all_reduce").calls, 1);
    EXPECT_EQ(plan.backward.size(), 1U);
    EXPECT_EQ(plan.parameters.front().layout, "plain");
    EXPECT_EQ(plan.memory.gathered, 0);
  });
}

}  // namespace
}  // namespace dtrun::dtensor
