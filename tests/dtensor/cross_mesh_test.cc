// From a mesh to another one, of any shape and ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>

#include "dtensor/carried_bytes.h"
#include "dtensor/catalogue.h"
#include "dtensor/rank_world.h"
#include "dtensor/refusal.h"
#include "dtensor/simulated_staging.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/plan/cross_mesh_plan.h"
#include "dtrun/tensor/cuda.h"
#include "mesh/crossing.h"
#include "mesh/mesh_body.h"
#include "move/cross_mesh.h"
#include "support/one_in.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using testing_support::one_in;

void expect_holds(const Tensor& tensor, const LocalTensor& global) {
  if (!tensor.device_mesh().has_this_rank()) {
    // A number has no dim that could be empty.
    EXPECT_EQ(tensor.to_local().numel(), tensor.dim() == 0 ? 1 : 0);
    return;
  }
  const Tensor whole = Tensor(tensor.full_tensor().local());
  EXPECT_EQ(difference(whole, global, {0, 0}), "");
  const Layout& layout = tensor.spec().layout();
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (layout.is_partial(axis)) return;
  }
  EXPECT_EQ(difference(tensor.to_local(), cut(global, tensor.spec().local_box()), {0, 0}), "");
}

Tensor placed_or_outside(const Catalogue& catalogue, std::size_t index, const DeviceMesh& mesh) {
  if (mesh.has_this_rank()) return placed(catalogue, index, mesh);
  return Tensor::outside(
      make_spec(mesh, catalogue.layouts[index], catalogue.shape, tensors::DType::f64),
      tensors::kCpu);
}

TEST(CrossMeshTest, EveryLayoutGoesToEveryLayoutOfEveryOtherMesh) {
  const std::vector<RankGrid> grids = {
      {0, 1},           {2, 3},    {{0, 1}, {2, 3}},   {3, 1, 2, 0},
      {{3, 0}, {1, 2}}, {4, 1, 3}, std::vector<int>{2}};
  for (const tensors::Shape& shape : {tensors::Shape{5, 7}, {3}, {}, {0, 2}}) {
    std::vector<Catalogue> catalogues;
    for (const RankGrid& grid : grids)
      catalogues.push_back(catalogue_of(shape, grid.shape(), {ReduceOp::sum, ReduceOp::avg}));
    run_world(6, [&](int) {
      std::vector<DeviceMesh> meshes;
      for (const RankGrid& grid : grids) meshes.push_back(DeviceMesh("cpu", grid));
      const LocalTensor global = global_tensor(shape);
      std::size_t pairs = 0;
      for (std::size_t a = 0; a < meshes.size(); ++a) {
        for (std::size_t i = 0; i < catalogues[a].layouts.size(); ++i) {
          const Tensor from = placed_or_outside(catalogues[a], i, meshes[a]);
          for (std::size_t b = 0; b < meshes.size(); ++b) {
            for (const Layout& to : catalogues[b].layouts) {
              if (pairs++ % one_in(11) != 0) continue;
              SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string() + " on " +
                           meshes[b].to_string());
              const Tensor there = from.redistribute(meshes[b], to.placements(), to.order());
              EXPECT_EQ(there.spec().layout(), to);
              EXPECT_EQ(there.device_mesh(), meshes[b]);
              expect_holds(there, global);
            }
          }
        }
      }
    });
  }
}

TEST(CrossMeshTest, LayoutsOfThreeAndFourAxesGoToOtherMeshesAndBack) {
  const std::vector<RankGrid> grids = {RankGrid(arange(8).reshape({2, 2, 2})),
                                       RankGrid(flip(arange(8), {0}).reshape({2, 1, 2, 2})),
                                       {{6, 0, 3}, {5, 2, 4}},
                                       {7, 1}};
  const tensors::Shape shape = {5, 7};
  std::vector<Catalogue> catalogues;
  for (const RankGrid& grid : grids)
    catalogues.push_back(catalogue_of(shape, grid.shape(), {ReduceOp::min, ReduceOp::product}));
  run_world(8, [&](int) {
    std::vector<DeviceMesh> meshes;
    for (const RankGrid& grid : grids) meshes.push_back(DeviceMesh("cpu", grid));
    const LocalTensor global = global_tensor(shape);
    std::mt19937 random(7);
    const auto some_layout_on = [&](std::size_t mesh) {
      return random() % catalogues[mesh].layouts.size();
    };
    for (unsigned i = 0; i < 600 / one_in(10); ++i) {
      // One of the two is a mesh of three or four axes.
      const std::size_t many = random() % 2, other = (many + 1 + random() % 3) % 4;
      const bool is_source = random() % 2 == 0;
      const std::size_t source = is_source ? many : other, target = is_source ? other : many;
      const std::size_t before = some_layout_on(source);
      const Layout &from = catalogues[source].layouts[before],
                   &to = catalogues[target].layouts[some_layout_on(target)];
      const Tensor x = placed_or_outside(catalogues[source], before, meshes[source]);
      SCOPED_TRACE(x.spec().to_string() + " -> " + to.to_string() + " on " +
                   meshes[target].to_string());
      const Tensor there = x.redistribute(meshes[target], to.placements(), to.order());
      EXPECT_EQ(there.spec().layout(), to);
      expect_holds(there, global);
      const Tensor back = there.redistribute(meshes[source], from.placements(), from.order());
      EXPECT_EQ(back.spec().layout(), from);
      expect_holds(back, global);
    }
  });
}

TEST(CrossMeshTest, RaggedShardsGoToRaggedShards) {
  const tensors::Shape shape = {5, 7};
  const Placements line[] = {{Shard(0, {0, 5})}, {Shard(1, {6, 1})}, {Shard(0)}, {Partial()}};
  const Placements grid[] = {{Shard(0, {1, 4}), Shard(1, {7, 0})},
                             {Shard(0), Shard(0, {0, 5})},
                             {Replicate(), Shard(1, {3, 4})},
                             {Replicate(), Replicate()}};
  run_world(4, [&](int) {
    const DeviceMesh pair("cpu", {1, 3}), square("cpu", {{3, 2}, {0, 1}});
    const LocalTensor global = global_tensor(shape);
    for (const Placements& on_line : line) {
      for (const Placements& on_grid : grid) {
        SCOPED_TRACE(placements_to_string(on_line) + ", " + placements_to_string(on_grid));
        const Tensor whole = distribute_tensor(global, square, on_grid);
        const Tensor there = whole.redistribute(pair, on_line);
        EXPECT_EQ(there.placements(), on_line);
        expect_holds(there, global);
        expect_holds(there.redistribute(square, on_grid), global);
      }
    }
  });
}

/// More than two ranks share the work of an all_reduce out as the transport likes.
bool has_wide_all_reduce(const std::vector<Step>& steps, const DeviceMesh& mesh) {
  return std::ranges::any_of(steps, [&](const Step& step) {
    return step.kind == StepKind::all_reduce && mesh.size(step.axis) > 2;
  });
}

/// What was sent is what is predicted, by the calls and by what the transports have carried.
/// @return whether those could be compared with
bool expect_bytes_as_predicted(const Tensor& x, const DeviceMesh& to, const Layout& after) {
  const Spec target = make_spec(to, after, x.shape(), x.dtype());
  const CrossMeshPlan plan = plan_across(x.spec(), target);
  const DeviceMesh from = x.device_mesh();
  const Traffic predicted = traffic_across(plan, x.spec(), target);
  std::optional<ProcessGroup> joint;
  if (from.has_this_rank() || to.has_this_rank()) joint = crossing_of(x.spec(), target)->group;
  const auto carried = [&] {
    return bytes_carried(from) + bytes_carried(to) + (joint ? bytes_carried(*joint) : 0);
  };
  const std::int64_t carried_before = carried();
  const CommCounter counter;
  x.redistribute(to, after.placements(), after.order());
  EXPECT_EQ(counter.get_total_bytes(), predicted.sent) << target.to_string();
  if (has_wide_all_reduce(plan.before, from) || has_wide_all_reduce(plan.after, to)) return false;
  EXPECT_EQ(carried() - carried_before, predicted.sent) << target.to_string();
  return true;
}

TEST(CrossMeshTest, ItSendsJustTheBytesThatArePredicted) {
  for (const auto transport : {collectives::Transport::automatic, collectives::Transport::tcp}) {
    std::atomic<std::size_t> moves = 0, compared = 0;
    test::run_ranks(6, {.transport = transport}, [&](const ProcessGroup& group) {
      collectives::set_default_group(&group);
      std::size_t number = 0;
      const DeviceMesh pair("cpu", {0, 1}), square("cpu", {{2, 3}, {4, 5}}),
          all("cpu", {{5, 4, 3}, {2, 1, 0}});
      for (const auto& [from, to] : {std::pair(pair, square), std::pair(square, pair),
                                     std::pair(square, all), std::pair(all, pair)}) {
        for (const tensors::Shape& shape : {tensors::Shape{5, 7}, {70, 51}}) {
          for (const Layout& before : all_layouts(shape, from.shape(), {ReduceOp::sum})) {
            const Tensor x = zeros(shape, from, before.placements());
            SCOPED_TRACE(std::to_string(group.rank()) + " " + x.spec().to_string());
            for (const Layout& after : all_layouts(shape, to.shape(), {ReduceOp::sum})) {
              // All ranks count alike.
              if (number++ % testing_support::one_in(7) != 0) continue;
              ++moves;
              compared += expect_bytes_as_predicted(x, to, after) ? 1 : 0;
            }
          }
        }
      }
      collectives::set_default_group(nullptr);
    });
    std::printf("%zu moves, %zu of them compared with the transport\n", moves.load(),
                compared.load());
    EXPECT_GT(compared, moves / 2);
  }
}

TEST(CrossMeshTest, GradientsComeBack) {
  run_world(4, [](int rank) {
    const DeviceMesh stage0("cpu", {0, 1}), stage1("cpu", {3, 2});
    const Tensor x =
        distribute_tensor(arange(12).to(DType::f32).reshape({4, 3}), stage0, {Shard(0)})
            .requires_grad_();
    const Tensor w = distribute_tensor(full({4, 3}, 2.0F), stage1, {Shard(1)}).requires_grad_();
    const Tensor loss = sum((x * x).redistribute(stage1, {Shard(1)}) * w);
    loss.backward();
    if (rank < 2) {
      EXPECT_EQ(x.grad().to_vector(), (arange(12).to(DType::f32) * 4).to_vector());
      EXPECT_EQ(x.grad().placements(), Placements{Shard(0)});
    } else {
      EXPECT_EQ(loss.item(), 1012);
      EXPECT_EQ(w.grad().to_vector()[5], 25);
    }
  });
}

/// Four ranks, of which 0 and 1 are to be a mesh of the CPU and 2 and 3 one of simulated devices.
void run_host_and_devices(const std::function<void(tensors::Device own)>& body) {
  const tensors::cuda::SimulatedDevices devices;
  register_simulated_staging();
  test::run_ranks(4, {.backend = "cpu:cpu,cuda:simulated"}, [&](const ProcessGroup& group) {
    collectives::set_default_group(&group);
    const tensors::Device own{tensors::DeviceType::cuda, group.rank() % 2};
    tensors::cuda::set_device(own.index);
    body(own);
    collectives::set_default_group(nullptr);
  });
}

/// That it has the global tensor's elements, on that device.
void expect_holds_on(tensors::Device device, const Tensor& tensor, const LocalTensor& global) {
  if (!tensor.device_mesh().has_this_rank()) return;
  EXPECT_EQ(tensor.local().device(), device);
  EXPECT_EQ(tensor.full_tensor().local().to(tensors::kCpu).to_vector(), global.to_vector());
  const Placements placements = tensor.placements();
  if (std::ranges::any_of(placements, [](const Placement& p) { return p.is_partial(); })) return;
  EXPECT_EQ(tensor.local().to(tensors::kCpu).to_vector(),
            cut(global, tensor.spec().local_box()).to_vector());
}

TEST(CrossMeshTest, EveryLayoutGoesFromTheHostToDevicesAndBack) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const Catalogue catalogue = catalogue_of({7, 5}, {2}, {ReduceOp::sum, ReduceOp::max});
  const LocalTensor global = global_tensor(catalogue.shape);
  std::atomic<std::size_t> moves = 0;
  run_host_and_devices([&](tensors::Device own) {
    const DeviceMesh host("cpu", {0, 1}), devices("cuda", {2, 3});
    for (std::size_t i = 0; i < catalogue.layouts.size(); ++i) {
      const Tensor from = placed_or_outside(catalogue, i, host);
      for (const Layout& to : catalogue.layouts) {
        SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
        const Tensor there = from.redistribute(devices, to.placements());
        EXPECT_EQ(there.device_mesh(), devices);
        expect_holds_on(own, there, global);
        const Tensor back = there.redistribute(host, catalogue.layouts[i].placements());
        expect_holds_on(tensors::kCpu, back, global);
        ++moves;
        // And while the program goes on, with both ways under way together.
        PendingTensor going = from.redistribute_async(devices, to.placements());
        PendingTensor coming = there.redistribute_async(host, catalogue.layouts[i].placements());
        expect_holds_on(own, going.wait(), global);
        expect_holds_on(tensors::kCpu, coming.wait(), global);
      }
    }
  });
  EXPECT_EQ(moves, 4 * catalogue.layouts.size() * catalogue.layouts.size());
}

TEST(CrossMeshTest, LayoutsGoFromDevicesToOtherDevices) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const Catalogue catalogue = catalogue_of({7, 5}, {2}, {ReduceOp::sum});
  const LocalTensor global = global_tensor(catalogue.shape);
  run_host_and_devices([&](tensors::Device own) {
    // Ranks 1 and 3 have device 1.
    const DeviceMesh first("cuda", {1, 2}), second("cuda", {0, 3});
    for (const Layout& before : catalogue.layouts) {
      const Tensor from =
          distribute_tensor(global.to(own), first, before.placements(), {.source_rank = -1});
      for (const Layout& to : catalogue.layouts) {
        SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
        for (int time = 0; time < 3; ++time) {
          const Tensor there = from.redistribute(second, to.placements());
          EXPECT_EQ(there.device_mesh(), second);
          expect_holds_on(own, there, global);
        }
      }
    }
  });
}

TEST(CrossMeshTest, LayoutsGoFromASquareOfDevicesToOtherMeshesAndBack) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const Shape shape = {7, 5};
  const LocalTensor global = global_tensor(shape);
  const std::vector<Layout> of_square = all_layouts(shape, {2, 2}, {ReduceOp::sum}),
                            of_line = all_layouts(shape, {2}, {ReduceOp::sum});
  std::atomic<std::size_t> moves = 0;
  run_host_and_devices([&](tensors::Device own) {
    const DeviceMesh square("cuda", {{0, 1}, {2, 3}}), turned("cuda", {{3, 1}, {0, 2}}),
        line("cuda", {2, 1}), host("cpu", {{1, 0}, {3, 2}});
    std::size_t number = 0;
    const auto go = [&](const DeviceMesh& other, tensors::Device there_on,
                        const std::vector<Layout>& layouts) {
      for (const Layout& before : of_square) {
        const Tensor from = distribute_tensor(global.to(own), square, before.placements(),
                                              {.source_rank = -1, .shard_order = before.order()});
        for (const Layout& to : layouts) {
          if (number++ % one_in(5) != 0) continue;
          SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
          const Tensor there = from.redistribute(other, to.placements(), to.order());
          expect_holds_on(there_on, there, global);
          expect_holds_on(own, there.redistribute(square, before.placements(), before.order()),
                          global);
          ++moves;
        }
      }
    };
    go(turned, own, of_square);
    go(line, own, of_line);
    go(host, tensors::kCpu, of_square);
  });
  std::printf("%zu moves of a rank\n", moves.load());
  EXPECT_GT(moves, 2000 / one_in(5));
}

TEST(CrossMeshTest, GradientsComeBackFromDevicesToTheHost) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  run_host_and_devices([](tensors::Device own) {
    const DeviceMesh host("cpu", {0, 1}), devices("cuda", {2, 3});
    const Tensor x = distribute_tensor(arange(12).to(DType::f32).reshape({4, 3}), host, {Shard(0)})
                         .requires_grad_();
    const Tensor w = full({4, 3}, 2.0F, devices, {Shard(1)}).requires_grad_();
    const Tensor there = (x * x).redistribute(devices, {Shard(1)}) * w;
    // Along the second way, too: the loss is one of the host's.
    const Tensor loss = sum(there.redistribute(host, {Replicate()}));
    loss.backward();
    if (host.has_this_rank()) {
      EXPECT_EQ(loss.item(), 2 * 506);
      EXPECT_EQ(x.grad().device(), tensors::kCpu);
      EXPECT_EQ(x.grad().placements(), Placements{Shard(0)});
      EXPECT_EQ(x.grad().to_vector(), (arange(12).to(DType::f32) * 4).to_vector());
    } else {
      EXPECT_EQ(w.grad().device(), own);
      EXPECT_EQ(w.grad().full_tensor().local().to(tensors::kCpu).to_vector(),
                square(arange(12).to(DType::f32)).to_vector());
    }
  });
}

TEST(CrossMeshTest, RanksThatHaveTheSameShareTheWork) {
  // Rank 0 and 1 each send one of the two halves.
  const tensors::Shape shape = {8};
  const BoxMessages halves(shape, {{2}, {0, 1}, Layout({Replicate()})},
                           {{2}, {2, 3}, Layout({Shard(0)})});
  EXPECT_EQ(halves.traffic(0).sent, 4);
  EXPECT_EQ(halves.traffic(1).sent, 4);
  // Who has it already keeps it.
  const BoxMessages grown(shape, {{2}, {0, 1}, Layout({Shard(0)})},
                          {{4}, {0, 1, 2, 3}, Layout({Shard(0)})});
  EXPECT_EQ(grown.traffic(0), (Traffic{2, 0}));
  EXPECT_EQ(grown.traffic(1), (Traffic{4, 2}));
  EXPECT_EQ(grown.traffic(3), (Traffic{0, 2}));
}

TEST(CrossMeshTest, MuchThatAllAreToHaveIsSentInChunks) {
  const tensors::Shape shape = {1 << 20};
  const PlacedLayout one{{1}, {0}, Layout({Replicate()})};
  const PlacedLayout eight{{8}, {1, 2, 3, 4, 5, 6, 7, 8}, Layout({Replicate()})};
  const CrossMeshPlan large = plan_cross_mesh(shape, one, eight, 4);
  EXPECT_EQ(large.wanted, Layout({Shard(0)}));
  ASSERT_EQ(large.after.size(), 1U);
  EXPECT_EQ(large.after[0].kind, StepKind::all_gather);
  const CrossMeshPlan small = plan_cross_mesh({8}, one, eight, 4);
  EXPECT_EQ(small.wanted, Layout({Replicate()}));
  EXPECT_TRUE(small.after.empty());
}

TEST(CrossMeshTest, TheSameRanksInAnotherGridCommunicateNothingWhereNothingMoves) {
  run_world(4, [](int) {
    const DeviceMesh line("cpu", {0, 1, 2, 3}), square("cpu", {{0, 1}, {2, 3}});
    const Tensor x = ones({8, 2}, line, {Shard(0)});
    const CommCounter counter;
    const Tensor y = x.redistribute(square, {Shard(0), Shard(0)});
    EXPECT_EQ(counter.get_total_counts(), 0);
    EXPECT_EQ(y.to_local().shape(), (Shape{2, 2}));
  });
}

TEST(CrossMeshTest, ItIsExplainedAndNothingThatNobodyAskedFor) {
  run_world(4, [](int rank) {
    const DeviceMesh one("cpu", {0}), others("cpu", {2, 3}, {"tp"});
    const std::vector<int> sent = {4 << 20, 0, 2 << 20, 2 << 20}, calls = {1, 0, 2, 2};
    const Tensor x = ones({1024, 1024}, one, {Replicate()});
    const StrictScope strict;
    const CommCounter counter;
    const CallsExplanation told = explain([&] { x.redistribute(others, {Replicate()}); });
    EXPECT_EQ(counter.get_total_counts(), 0);
    const bool is_told =
        told.to_string().find("messages to the other mesh, then all_gather along tp") !=
        std::string::npos;
    EXPECT_EQ(is_told, rank != 1) << told.to_string();
    EXPECT_EQ(told.bytes_sent(), sent[static_cast<std::size_t>(rank)]);
    x.redistribute(others, {Replicate()});
    EXPECT_EQ(counter.get_total_bytes(), told.bytes_sent());
    EXPECT_EQ(counter.get_total_counts(), calls[static_cast<std::size_t>(rank)]);
  });
}

TEST(CrossMeshTest, RanksThatAskForDifferentThingsAreToldWhatEachAskedFor) {
  const auto thrown = test::run_failing_ranks(4, {}, [](const ProcessGroup& group) {
    const DeviceMesh all(group, {4}), square(group, {2, 2});
    const Tensor x = ones({8, 8}, all, {Shard(0)});
    x.redistribute(square, group.rank() == 0 ? Placements{Replicate(), Shard(1)}
                                             : Placements{Shard(1), Shard(1)});
    group.barrier();
  });
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    ASSERT_TRUE(thrown[rank]) << rank;
    EXPECT_EQ(thrown[rank]->code, base::ErrorCode::kDisagreement) << thrown[rank]->text;
    const std::string own = "this rank, " + std::to_string(rank) + ", was in redistribute of ";
    EXPECT_NE(thrown[rank]->text.find(own), std::string::npos) << thrown[rank]->text;
  }
}

// One has collectives of the first mesh before its messages, in which the second has no part.
TEST(CrossMeshTest, MovesThatAreUnderWayTogetherSendInOneOrderOnAllRanks) {
  run_world(4, [](int) {
    const DeviceMesh first("cpu", {0, 1}), second("cpu", {2, 3});
    const LocalTensor global = global_tensor({6, 5});
    const Tensor cut = distribute_tensor(global, first, {Shard(0)});
    const Tensor partial = cut.redistribute({Replicate()}).redistribute({Partial()});
    for (const bool is_first_waited_first : {false, true}) {
      PendingTensor summed = partial.redistribute_async(second, {Shard(1)});
      PendingTensor sent = cut.redistribute_async(second, {Replicate()});
      PendingTensor summed_too = partial.redistribute_async(second, {Shard(0)});
      if (is_first_waited_first) expect_holds(summed.wait(), global);
      expect_holds(summed_too.wait(), global);
      expect_holds(sent.wait(), global);
      expect_holds(summed.wait(), global);
    }
  });
}

TEST(CrossMeshTest, ShapesThatDifferAreToldThoughTheMessagesAreOfOneSize) {
  const auto thrown = test::run_failing_ranks(4, {}, [](const ProcessGroup& group) {
    const DeviceMesh all(group, {4}), square(group, {2, 2});
    const Tensor x = ones(group.rank() == 0 ? Shape{4, 8} : Shape{8, 4}, all, {Shard(0)});
    x.redistribute(square, {Shard(1), Replicate()});
    group.barrier();
  });
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    ASSERT_TRUE(thrown[rank]) << rank;
    EXPECT_EQ(thrown[rank]->code, base::ErrorCode::kDisagreement) << thrown[rank]->text;
    EXPECT_NE(thrown[rank]->text.find(rank == 0 ? "f32[4, 8]" : "f32[8, 4]"), std::string::npos)
        << thrown[rank]->text;
  }
}

// Rank 1 has nothing to send for what it asks, and goes on; rank 3 waits for it.
TEST(CrossMeshTest, WhoWaitsForElementsThatNobodySendsIsTold) {
  const auto thrown = test::run_failing_ranks(4, {}, [](const ProcessGroup& group) {
    collectives::set_default_group(&group);
    const DeviceMesh first("cpu", {0, 1}), second("cpu", {2, 3});
    const auto move = [&](std::int64_t rows) {
      ones({rows, 8}, first, {Replicate()}).redistribute(second, {Shard(0)});
    };
    for (int call = 0; call < 3; ++call) move(8);
    move(group.rank() == 1 ? 1 : 8);
    group.barrier();
  });
  for (const auto& mine : thrown) {
    ASSERT_TRUE(mine);
    EXPECT_EQ(mine->code, base::ErrorCode::kDisagreement) << mine->text;
    EXPECT_NE(mine->text.find("rank 1 called all_to_all"), std::string::npos) << mine->text;
  }
  EXPECT_NE(thrown[3]->text.find("this rank, 3, was in redistribute of f32[8, 8]"),
            std::string::npos)
      << thrown[3]->text;
}

TEST(CrossMeshTest, WhatIsRememberedKeepsNeitherMeshAndIsOfThisOne) {
  run_world(4, [](int rank) {
    const DeviceMesh stage0("cpu", {0, 1});
    // What the meshes remember; a tensor that has moved twice keeps the target (RepeatedMove).
    const auto x = [&] {
      return distribute_tensor(arange(8).to(DType::f32), stage0, {Shard(0)}, {.source_rank = -1});
    };
    // Another mesh each time, perhaps where the one before was.
    for (const int first : {2, 3, 2, 3}) {
      std::weak_ptr<MeshBody> target;
      {
        const DeviceMesh stage1("cpu", {first, 5 - first});
        target = stage1.body();
        for (int i = 0; i < 3; ++i) {
          const Tensor from = x(), there = from.redistribute(stage1, {Shard(0)});
          const double least = rank == first ? 0 : 4;
          if (stage1.has_this_rank()) {
            EXPECT_EQ(there.local().to_vector(),
                      (std::vector<double>{least, least + 1, least + 2, least + 3}));
          }
          EXPECT_EQ(crossing_of(from.spec(), there.spec()), crossing_of(from.spec(), there.spec()));
        }
      }
      EXPECT_TRUE(target.expired());
    }
    std::weak_ptr<MeshBody> source;
    {
      const DeviceMesh pair("cpu", {1, 2});
      source = pair.body();
      ones({4}, pair, {Shard(0)}).redistribute(stage0, {Shard(0)}).redistribute(pair, {Shard(0)});
    }
    EXPECT_TRUE(source.expired());
  });
}

TEST(CrossMeshTest, WhatGoesAgainAndAgainBringsItsElementsOfThatTime) {
  const std::vector<RankGrid> grids = {
      std::vector<int>{0}, {0, 1}, {2, 3}, {{0, 1}, {2, 3}}, {3, 1, 2}};
  const tensors::Shape shape = {5, 6};
  std::vector<Catalogue> catalogues;
  for (const RankGrid& grid : grids)
    catalogues.push_back(catalogue_of(shape, grid.shape(), {ReduceOp::sum}));
  run_world(4, [&](int) {
    std::vector<DeviceMesh> meshes;
    for (const RankGrid& grid : grids) meshes.push_back(DeviceMesh("cpu", grid));
    const LocalTensor global = global_tensor(shape);
    std::size_t pairs = 0;
    for (std::size_t a = 0; a < meshes.size(); ++a) {
      for (std::size_t i = 0; i < catalogues[a].layouts.size(); ++i) {
        for (std::size_t b = 0; b < meshes.size(); ++b) {
          for (const Layout& to : catalogues[b].layouts) {
            if (a == b || !to.order().empty() || pairs++ % one_in(7) != 0) continue;
            const Tensor from = placed_or_outside(catalogues[a], i, meshes[a]);
            SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string() + " on " +
                         meshes[b].to_string());
            // The third move is the first that the tensor has kept.
            std::vector<Tensor> there;
            for (int time = 0; time < 4; ++time) {
              there.push_back(from.redistribute(meshes[b], to.placements()));
              if (meshes[a].has_this_rank()) from.local().copy_(tensors::mul(from.local(), 2));
            }
            for (int time = 0; time < 4; ++time)
              expect_holds(there[static_cast<std::size_t>(time)], tensors::mul(global, 1 << time));
          }
        }
      }
    }
  });
}

TEST(CrossMeshTest, APartThatIsNoRunOfElementsGoesAgainToo) {
  run_world(3, [](int rank) {
    const DeviceMesh one("cpu", std::vector<int>{0}), all("cpu", {0, 1, 2});
    const LocalTensor global = global_tensor({6, 4});
    const LocalTensor turned = tensors::empty({4, 6}, {DType::f64}).transpose(0, 1);
    turned.copy_(global);
    const Tensor x = rank == 0 ? Tensor::from_local(turned, one, {Replicate()})
                               : Tensor::outside(make_spec(one, {Replicate()}, {6, 4}, DType::f64),
                                                 tensors::kCpu);
    for (int time = 0; time < 4; ++time) {
      expect_holds(x.redistribute(all, {Shard(0)}), global);
      expect_holds(x.redistribute(all, {Shard(1)}), global);
    }
    // Other elements in other memory.
    if (rank == 0) x.set_data(Tensor::from_local(tensors::mul(global, 3), one, {Replicate()}));
    for (int time = 0; time < 4; ++time)
      expect_holds(x.redistribute(all, {Shard(0)}), tensors::mul(global, 3));
  });
}

TEST(CrossMeshTest, AKeptMoveOwnsNothingOfTheTensor) {
  run_world(3, [](int) {
    const DeviceMesh one("cpu", std::vector<int>{0}), all("cpu", {0, 1, 2});
    const Tensor x = zeros({6, 4}, one, {Replicate()}), y = ones({6, 4}, one, {Replicate()});
    for (int time = 0; time < 3; ++time) x.redistribute(all, {Shard(0)});
    EXPECT_EQ(x.local().storage()->owners(), 1u);
    // In place, with a gradient, which is refused of a tensor that shares its elements.
    y.requires_grad_();
    x.add_(y);
    EXPECT_EQ(x.redistribute(all, {Shard(0)}).full_tensor().sum().item(), 24);
  });
}

TEST(CrossMeshTest, OtherLinksOfEitherMeshGiveAnotherPlan) {
  run_world(3, [](int) {
    const DeviceMesh one("cpu", {0}), others("cpu", {1, 2}, {"tp"});
    const Tensor x = ones({1024, 1024}, one, {Replicate()});
    const auto gathers = [&] {
      x.redistribute(others, {Replicate()});
      return !crossing_of(x.spec(), make_spec(others, {Replicate()}, x.shape(), x.dtype()))
                  ->plan.after.empty();
    };
    EXPECT_TRUE(gathers());
    others.set_links({{1, kSharedMemoryLink.bytes_per_second}});
    EXPECT_FALSE(gathers());
    others.set_links({kSharedMemoryLink});
    EXPECT_TRUE(gathers());
  });
}

TEST(CrossMeshTest, ACheckpointedCrossingHasItsGradient) {
  run_world(4, [](int) {
    const DeviceMesh stage0("cpu", {0, 1}), stage1("cpu", {2, 3});
    const Tensor x =
        distribute_tensor(arange(8).to(DType::f32), stage0, {Shard(0)}, {.source_rank = -1})
            .requires_grad_();
    const auto crossed = [&](const Tensor& t) {
      return square(t.redistribute(stage1, {Shard(0)}));
    };
    sum(checkpoint(crossed, x)).backward();
    if (stage0.has_this_rank()) {
      const std::vector<double> values = x.detach().local().to_vector();
      EXPECT_EQ(x.grad().local().to_vector(),
                (std::vector<double>{2 * values[0], 2 * values[1], 2 * values[2], 2 * values[3]}));
    }
  });
}

TEST(CrossMeshTest, WhatCannotMeetIsRefused) {
  run_world(4, [](int) {
    const DeviceMesh square("cpu", {{0, 1}, {2, 3}}, {"dp", "tp"});
    const Tensor x = ones({4}, square["dp"], {Shard(0)});
    expect_refused([&] { x.redistribute(square["tp"], {Replicate()}); },
                   "other ranks see other slices");
    expect_refused([&] { x.redistribute(square, {Replicate()}); }, "do not fit the mesh");
    expect_refused(
        [&] {
          ones({4}).redistribute(square, {Replicate(), Replicate()});
        },
        "has no mesh");
  });
  test::run_ranks(4, [](const ProcessGroup& group) {
    const ProcessGroup half = group.split({{0, 1}, {2, 3}}, "half");
    const DeviceMesh own(half, {2}), all(group, {4});
    // The same on each half; nobody knows all ranks of a half and of the other one.
    const Tensor x = ones({4}, own, {Shard(0)});
    EXPECT_EQ(x.redistribute(DeviceMesh(half, {2}, {"x"}), {Replicate()}).to_vector(),
              (std::vector<double>{1, 1, 1, 1}));
  });
}

}  // namespace
}  // namespace dtrun::dtensor
