// Ranks outside of a mesh: they know what lies on it, have no part of it, and nobody waits for
// them.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "dtensor/operator_samples.h"
#include "dtensor/refusal.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/distribute_module.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/local_map.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

/// Three ranks, of which the last one is outside of the mesh.
void run_beside_a_pair(const std::function<void(const DeviceMesh& pair, int rank)>& body) {
  test::run_ranks(3, [&](const ProcessGroup& group) {
    collectives::set_default_group(&group);
    body(DeviceMesh("cpu", {0, 1}), group.rank());
    collectives::set_default_group(nullptr);
  });
}

TEST(OutsideMeshTest, ARankOutsideHasNoCoordinateNoGroupAndNoElements) {
  run_beside_a_pair([](const DeviceMesh& pair, int rank) {
    EXPECT_EQ(pair.has_this_rank(), rank < 2);
    EXPECT_EQ(pair.size(), 2);
    EXPECT_EQ(pair.ranks(), (std::vector<int>{0, 1}));
    const Tensor x = distribute_tensor(arange(8).reshape({4, 2}), pair, {Shard(0)});
    EXPECT_EQ(x.shape(), (Shape{4, 2}));
    EXPECT_EQ(x.to_local().numel(), rank < 2 ? 4 : 0);
    if (rank < 2) return;
    EXPECT_EQ(pair.rank(), -1);
    EXPECT_TRUE(pair.coordinate().empty());
    expect_refused([&] { pair.local_rank(0); }, "outside of the mesh", base::ErrorCode::kUsage);
    expect_refused([&] { pair.group(0); }, "outside of a mesh", base::ErrorCode::kUsage);
    expect_refused([&] { x.to_vector(); }, "outside of its mesh", base::ErrorCode::kUsage);
    expect_refused([&] { sum(x).item(); }, "outside of its mesh", base::ErrorCode::kUsage);
  });
}

TEST(OutsideMeshTest, TrainingGoesOnWithoutTheRanksOutside) {
  run_beside_a_pair([](const DeviceMesh& pair, int rank) {
    const Tensor w = distribute_tensor(ones({4, 2}), pair, {Shard(1)}).requires_grad_();
    const Tensor x = zeros({3, 4}, pair, {Replicate()}) + 2;
    const Tensor loss = sum(matmul(x, w));
    loss.backward();
    w.grad().mul_(0.5);
    const Tensor parameter = w.detach();
    parameter.sub_(w.grad());
    // Views are written to on all ranks, or refused on all.
    parameter.t().unsqueeze(0).add_(0);
    expect_refused([&] { parameter.select(1, 0).add_(1); }, "copy of what a view would show");
    EXPECT_EQ(loss.spec().to_string(), "f32[] on (2): [P(sum)]");
    EXPECT_EQ(w.grad().shape(), (Shape{4, 2}));
    if (rank == 2) return;
    EXPECT_EQ(parameter.to_vector(), full({8}, -2.0).to_vector());
    EXPECT_EQ(loss.item(), 48);
  });
}

TEST(OutsideMeshTest, AModuleTrainsWithoutTheRanksOutside) {
  manual_seed(1);
  const nn::Linear whole(4, 2);
  const Tensor x = ones({3, 4});
  const Tensor expected = sum(whole(x));
  expected.backward();
  run_beside_a_pair([&](const DeviceMesh& pair, int rank) {
    manual_seed(1);
    const nn::Linear linear(4, 2);
    distribute_module(
        *linear, pair,
        {.partition = [](const std::string&, nn::Module& module, const DeviceMesh& mesh) {
          module.distribute_parameter("weight", mesh, {Shard(0)});
        }});
    linear->load_state_dict(whole->state_dict());
    const Tensor loss = sum(linear(distribute_tensor(x, pair, {Replicate()})));
    loss.backward();
    EXPECT_EQ(linear->weight.grad().shape(), (Shape{2, 4}));
    if (rank == 2) return;
    EXPECT_NEAR(loss.item(), expected.item(), 1e-5);
    EXPECT_EQ(linear->weight.grad().to_vector(), whole->weight.grad().to_vector());
  });
}

TEST(OutsideMeshTest, LocalMapIsCalledOnTheMeshsRanksOnly) {
  run_beside_a_pair([](const DeviceMesh& pair, int rank) {
    const Tensor x = distribute_tensor(ones({4}), pair, {Shard(0)});
    const auto twice =
        local_map([](const Tensor& part) { return part * 2; }, {.out_placements = {{Shard(0)}}});
    if (rank < 2) {
      EXPECT_EQ(twice(x).to_vector(), full({4}, 2).to_vector());
    } else {
      expect_refused([&] { twice(x); }, "outside of", base::ErrorCode::kUsage);
    }
  });
}

/// The samples' inputs on the mesh, cut along their first dim where they have one.
Tensors placed(const Tensors& inputs, const DeviceMesh& mesh) {
  Tensors result;
  for (const Tensor& input : inputs) {
    const Placement placement = input.dim() > 0 ? Shard(0) : Replicate();
    result.push_back(distribute_tensor(input, mesh, {placement}, {.source_rank = -1}));
  }
  return result;
}

// How many elements they have depends on elements.
TEST(OutsideMeshTest, WhatAMaskSelectsIsRefusedOutside) {
  run_beside_a_pair([](const DeviceMesh& pair, int rank) {
    const Tensor x = distribute_tensor(arange(6), pair, {Shard(0)}, {.source_rank = -1});
    const Tensor mask = x > 2;
    const std::vector<std::pair<const char*, std::function<Tensor()>>> calls = {
        {"masked_select", [&] { return masked_select(x, mask); }},
        {"nonzero", [&] { return nonzero(mask); }},
        {"x[mask]", [&] { return x[mask]; }}};
    for (const auto& [name, call] : calls) {
      SCOPED_TRACE(name);
      if (rank < 2) {
        EXPECT_EQ(call().numel(), 3);
      } else {
        expect_refused([&] { call(); }, "outside of its mesh", base::ErrorCode::kUsage);
      }
    }
  });
}

TEST(OutsideMeshTest, EveryOperatorGivesTheSpecThatTheMembersGet) {
  const std::vector<OperatorSample> samples = operator_samples(4, 6);
  ASSERT_GT(samples.size(), 100U);
  std::mutex mutex;
  std::map<std::string, std::set<std::string>> specs;
  run_beside_a_pair([&](const DeviceMesh& pair, int rank) {
    for (const OperatorSample& sample : samples) {
      // How many elements they have depends on all numbers.
      if (sample.name.starts_with("masked_select") || sample.name == "nonzero" ||
          sample.name == "index, a mask")
        continue;
      std::string spec = "refused";
      try {
        const Tensor result = sample.run(placed(sample.inputs, pair));
        spec = result.is_distributed() ? result.spec().to_string() : "local";
        if (rank == 2 && result.is_distributed()) {
          EXPECT_TRUE(result.spec().is_outside()) << sample.name;
        }
      } catch (const base::Error& error) {
        if (rank == 2) ADD_FAILURE() << sample.name << ": " << error.what();
      }
      const std::lock_guard lock(mutex);
      specs[sample.name].insert(spec);
    }
  });
  for (const auto& [name, seen] : specs) EXPECT_EQ(seen.size(), 1U) << name;
}

}  // namespace
}  // namespace dtrun::dtensor
