// Training for a long time, on one mesh after another: memory stays flat, and each training repeats
// the losses of the first one on its mesh, bit for bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "dtensor/parallel/small_models.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/parallel/context_parallel.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "dtrun/dtensor/parallel/pipeline.h"
#include "dtrun/dtensor/parallel/zero_redundancy_optimizer.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

enum class Way {
  copies,
  parts,
  hybrid,
  columns,
  parts_of_columns,
  stages,
  sequence,
  ring,
  states_in_parts
};
constexpr Way kWays[] = {Way::copies,           Way::parts,  Way::hybrid,   Way::columns,
                         Way::parts_of_columns, Way::stages, Way::sequence, Way::ring,
                         Way::states_in_parts};

const ParallelPlan& columns_and_rows() {
  static const ParallelPlan kPlan = {{"blocks.*.up", Colwise()}, {"blocks.*.down", Rowwise()}};
  return kPlan;
}

std::vector<double> losses_of_pipeline(const ProcessGroup& group) {
  manual_seed(21);
  const nn::Sequential layers(nn::Embedding(11, 8), std::make_shared<Block>(),
                              std::make_shared<Block>(), nn::Linear(8, 5));
  Pipeline pipeline(layers, DeviceMesh(group, {4}, {"pp"}),
                    {.microbatches = 4, .loss = [](const Tensor& scores, const Tensor& targets) {
                       return cross_entropy(flatten(scores, 0, 1), targets);
                     }});
  optim::AdamW optimizer(pipeline.model()->parameters(), {.lr = 0.01});
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    losses.push_back(pipeline.step(made_tokens(12), made_targets(12)).item());
    optimizer.step();
  }
  return losses;
}

/// Norms, dropout and what lies between layers have a part of the positions.
const ParallelPlan& parts_of_the_sequence() {
  const StyleOptions whole{.input = Shard(1)}, cut{.output = Shard(1)};
  static const ParallelPlan kPlan = {
      {"table", PrepareOutput({.given = {Replicate()}, .wanted = {Shard(1)}})},
      {"blocks.*.norm", Sequence()},
      {"blocks.*.up", Colwise(whole)},
      {"blocks.*.down", Rowwise(cut)},
      {"head", Colwise({.input = Shard(1), .output = Replicate()})}};
  return kPlan;
}

/// Attention over [samples, positions, 8], and dropout.
struct Seeing : nn::Module {
  nn::Embedding table = register_module("table", nn::Embedding(11, 8));
  nn::MultiheadAttention attention = register_module(
      "attention", nn::MultiheadAttention(8, 2, {.batch_first = true, .is_causal = true}));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(0.1));
  nn::Linear head = register_module("head", nn::Linear(8, 5));
  Tensor forward(const Tensor& tokens) override {
    const Tensor x = table(tokens);
    return head(x + dropout(attention(x)));
  }
};

/// Positions go round a ring of two, samples over the two of the other axis.
std::vector<double> losses_of_ring(const ProcessGroup& group) {
  manual_seed(21);
  Seeing model;
  const DeviceMesh mesh(group, {2, 2}, {"dp", "cp"});
  context_parallel(model, mesh["cp"]);
  data_parallel(model, mesh.flatten());
  const auto own = [&](const Tensor& whole) {
    return context_shard(whole.narrow(0, mesh.local_rank("dp") * 6, 6), mesh["cp"], 1);
  };
  const Tensor tokens = own(made_tokens(12)), targets = own(made_targets(12).reshape({12, 4}));
  optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(flatten(model(tokens), 0, 1), flatten(targets));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item());
  }
  return losses;
}

std::vector<double> losses_of_states_in_parts(const ProcessGroup& group) {
  const auto model = made_reader();
  const DeviceMesh line(group, {4}, {"dp"});
  data_parallel(*model, line, {.static_graph = true});
  ZeroRedundancyOptimizer optimizer(model->parameters(), line, [](const Tensors& parts) {
    return std::make_unique<optim::AdamW>(parts, optim::AdamWOptions{.lr = 0.01});
  });
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const Tensor loss = part_of_loss(*model, group);
    loss.backward();
    optim::clip_grad_norm_(model->parameters(), 1);
    optimizer.step();
    losses.push_back(loss.item());
  }
  return losses;
}

std::vector<double> losses_of(Way way, const ProcessGroup& group) {
  if (way == Way::stages) return losses_of_pipeline(group);
  if (way == Way::ring) return losses_of_ring(group);
  if (way == Way::states_in_parts) return losses_of_states_in_parts(group);
  const auto model = made_reader();
  const DeviceMesh line(group, {4}, {"dp"}), box(group, {2, 2}, {"dp", "tp"});
  ProcessGroup samples = group;
  if (way == Way::copies) data_parallel(*model, line);
  if (way == Way::parts) fully_shard(*model, line, {.units = {"blocks.*"}});
  if (way == Way::hybrid) fully_shard(*model, box, {.units = {"blocks.*"}});
  if (way == Way::columns || way == Way::parts_of_columns || way == Way::sequence) {
    parallelize(*model, box["tp"],
                way == Way::sequence ? parts_of_the_sequence() : columns_and_rows());
    samples = box.group("dp");
    if (way != Way::parts_of_columns) data_parallel(*model, box["dp"]);
    if (way == Way::parts_of_columns) fully_shard(*model, box["dp"], {.units = {"blocks.*"}});
  }
  optim::AdamW optimizer(model->parameters(), {.lr = 0.01});
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const Tensor loss = part_of_loss(*model, samples);
    loss.backward();
    optim::clip_grad_norm_(model->parameters(), 1);
    optimizer.step();
    losses.push_back(loss.item());
  }
  return losses;
}

std::vector<std::vector<double>> losses_of_ranks(Way way) {
  std::vector<std::vector<double>> all(4);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    all[static_cast<std::size_t>(group.rank())] = losses_of(way, group);
  });
  return all;
}

/// Pages of this process that are in memory.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(SoakTest, MemoryStaysFlatAndLossesRepeatOnEveryMesh) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(DTRUN_SOAK_SECONDS);
  std::vector<std::vector<std::vector<double>>> first;
  for (const Way way : kWays) first.push_back(losses_of_ranks(way));
  // All but those with another model, or another clipping, learn as the first one does.
  const auto mean = [&](Way way, std::size_t step) {
    double sum = 0;
    for (const auto& losses : first[static_cast<std::size_t>(way)]) sum += losses[step];
    return sum / 4;
  };
  EXPECT_LT(mean(Way::copies, 19), mean(Way::copies, 0));
  EXPECT_LT(mean(Way::ring, 19), mean(Way::ring, 0));
  for (const Way way : {Way::parts, Way::hybrid, Way::columns, Way::parts_of_columns, Way::sequence,
                        Way::states_in_parts}) {
    for (std::size_t step = 0; step < 20; ++step)
      EXPECT_NEAR(mean(way, step), mean(Way::copies, step), 1e-9) << static_cast<int>(way);
  }
  std::int64_t warm = 0;
  int rounds = 0;
  for (; rounds < 4 || Clock::now() < end; ++rounds) {
    if (rounds == 3) warm = resident_bytes();
    for (std::size_t i = 0; i < std::size(kWays); ++i)
      ASSERT_EQ(losses_of_ranks(kWays[i]), first[i]) << "round " << rounds << ", way " << i;
  }
  const std::int64_t after = resident_bytes();
  std::printf("%d rounds of %zu trainings of 20 steps; resident %lld, then %lld bytes\n", rounds,
              std::size(kWays), static_cast<long long>(warm), static_cast<long long>(after));
#ifndef DTRUN_SOAK_MEMORY_IS_THE_SANITIZERS
  EXPECT_LE(after, warm + std::max<std::int64_t>(warm / 20, 8 << 20));
#endif
}

}  // namespace
}  // namespace dtrun::dtensor
