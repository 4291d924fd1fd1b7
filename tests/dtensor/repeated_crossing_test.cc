// Tensors that go to another mesh again and again: what they keep of the move, and that nothing
// else differs from the first time.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "dtensor/catalogue.h"
#include "dtensor/rank_world.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/base/log.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "mesh/crossing.h"
#include "mesh/mesh_body.h"
#include "move/kept_crossing.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

bool goes_again_as_kept(const Tensor& x, const DeviceMesh& to, const Placements& placements) {
  return Graph::repeated_move(x, to, placements) != nullptr;
}

/// x = 0, 1, 2, ... of that length in two halves.
Tensor two_halves(const DeviceMesh& mesh, std::int64_t length) {
  return distribute_tensor(arange(length).to(DType::f32), mesh, {Shard(0)}, {.source_rank = -1});
}

/// What the ranks of the mesh hold of `two_halves`.
void expect_halves(const Tensor& y, std::int64_t length) {
  const DeviceMesh mesh = y.device_mesh();
  if (!mesh.has_this_rank()) {
    EXPECT_EQ(y.local().numel(), 0);
    return;
  }
  const std::int64_t half = length / 2;
  const LocalTensor all = tensors::arange(length, {.dtype = DType::f32});
  EXPECT_EQ(y.local().to_vector(), all.narrow(0, mesh.rank() * half, half).to_vector());
}

/// Of one that has gone there twice.
bool can_be_kept(const Tensor& x, const Tensor& there) {
  if (x.spec().is_outside() && there.spec().is_outside()) return false;
  if (x.device_mesh() == there.device_mesh()) return false;
  return !x.shape().empty() && crossing_of(x.spec(), there.spec())->is_messages_only;
}

struct MovesAndKept {
  std::atomic<std::size_t> moves = 0, kept = 0;
};

/// Goes to the target three times. @param global its elements
void expect_the_same_again(const Tensor& x, const Spec& target, const LocalTensor& global,
                           MovesAndKept& counts) {
  const DeviceMesh mesh = target.mesh();
  SCOPED_TRACE(x.spec().to_string() + " -> " + target.to_string());
  for (int time = 0; time < 2; ++time) x.redistribute(mesh, target.placements());
  const Tensor there = x.redistribute(mesh, target.placements());
  const bool was_kept = goes_again_as_kept(x, mesh, target.placements());
  EXPECT_EQ(was_kept, can_be_kept(x, there));
  ++counts.moves;
  counts.kept += was_kept ? 1 : 0;
  EXPECT_EQ(there.spec(), target);
  if (!mesh.has_this_rank()) return;
  EXPECT_EQ(difference(Tensor(there.full_tensor().local()), global, {0, 0}), "");
}

TEST(RepeatedCrossingTest, EveryLayoutBringsTheSameAgain) {
  const std::vector<RankGrid> grids = {{0, 1}, {3, 2}, {{0, 1}, {2, 3}}, {1, 4, 2}};
  MovesAndKept counts;
  for (const tensors::Shape& shape : {tensors::Shape{5, 7}, {3}, {}, {0, 2}}) {
    std::vector<Catalogue> catalogues;
    for (const RankGrid& grid : grids)
      catalogues.push_back(catalogue_of(shape, grid.shape(), {ReduceOp::sum}));
    run_world(5, [&](int) {
      std::vector<DeviceMesh> meshes;
      for (const RankGrid& grid : grids) meshes.push_back(DeviceMesh("cpu", grid));
      const LocalTensor global = global_tensor(shape);
      const auto tensor_in = [&](std::size_t mesh, std::size_t layout) {
        if (meshes[mesh].has_this_rank()) return placed(catalogues[mesh], layout, meshes[mesh]);
        return Tensor::outside(
            make_spec(meshes[mesh], catalogues[mesh].layouts[layout], shape, DType::f64),
            tensors::kCpu);
      };
      std::size_t pairs = 0;
      for (std::size_t a = 0; a < meshes.size(); ++a) {
        for (std::size_t i = 0; i < catalogues[a].layouts.size(); ++i) {
          for (std::size_t b = 0; b < meshes.size(); ++b) {
            for (const Layout& to : catalogues[b].layouts) {
              const Spec target = make_spec(meshes[b], to.placements(), shape, DType::f64);
              if (target.layout() != to) continue;  // of another shard order
              if (pairs++ % testing_support::one_in(13) != 0) continue;
              expect_the_same_again(tensor_in(a, i), target, global, counts);
            }
          }
        }
      }
    });
  }
  std::printf("%zu of %zu moves were kept\n", counts.kept.load(), counts.moves.load());
  EXPECT_GT(counts.kept, counts.moves / 5);
}

TEST(RepeatedCrossingTest, ItIsKeptFromTheSecondTimeOnUntilSetData) {
  run_world(4, [](int rank) {
    const DeviceMesh first("cpu", {0, 1}), second("cpu", {2, 3});
    const Tensor x = two_halves(first, 8);
    for (int time = 0; time < 4; ++time) {
      EXPECT_EQ(goes_again_as_kept(x, second, {Shard(0)}), time >= 2) << time;
      expect_halves(x.redistribute(second, {Shard(0)}), 8);
    }
    EXPECT_FALSE(goes_again_as_kept(x, second, {Replicate()}));
    EXPECT_FALSE(goes_again_as_kept(x, DeviceMesh("cpu", {3, 2}), {Shard(0)}));
    x.set_data(two_halves(first, 12));
    for (int time = 0; time < 4; ++time) {
      EXPECT_EQ(goes_again_as_kept(x, second, {Shard(0)}), time >= 2) << rank << " " << time;
      expect_halves(x.redistribute(second, {Shard(0)}), 12);
    }
  });
}

TEST(RepeatedCrossingTest, ItKeepsItsTargetAsLongAsTheTensorKeepsIt) {
  run_world(4, [](int) {
    const DeviceMesh first("cpu", {0, 1});
    for (const bool ends_by_data : {true, false}) {
      std::optional<Tensor> x = two_halves(first, 8);
      std::weak_ptr<MeshBody> target;
      {
        const DeviceMesh second("cpu", {2, 3});
        target = second.body();
        for (int time = 0; time < 3; ++time) expect_halves(x->redistribute(second, {Shard(0)}), 8);
      }
      EXPECT_FALSE(target.expired());
      // An equal mesh is another one.
      const DeviceMesh equal("cpu", {2, 3});
      EXPECT_FALSE(goes_again_as_kept(*x, equal, {Shard(0)}));
      expect_halves(x->redistribute(equal, {Shard(0)}), 8);
      if (ends_by_data)
        x->set_data(two_halves(first, 8));
      else
        x.reset();
      EXPECT_TRUE(target.expired());
    }
  });
}

// Whether a tensor shares its elements, and is older than another, is asked of its storage.
TEST(RepeatedCrossingTest, ResultsWithoutElementsAreWrittenAsOthers) {
  run_world(4, [](int rank) {
    const DeviceMesh from("cpu", {0, 1});
    const Tensor x = arange(3, from, {Shard(0)}, DType::f32);
    // Rank 3 gets none, then is outside.
    for (const DeviceMesh& to : {DeviceMesh("cpu", {0, 1, 2, 3}), DeviceMesh("cpu", {0, 1, 2})}) {
      Tensor weight = ones({3}, to, {Shard(0)});
      weight.requires_grad_();
      std::vector<Tensor> results;
      for (int move = 0; move < 4; ++move) {
        results.push_back(x.redistribute(to, {Shard(0)}));
        results.back().add_(weight);
      }
      if (!to.has_this_rank()) continue;
      for (std::size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i].full_tensor().to_vector(), (std::vector<double>{1, 2, 3})) << rank;
        for (std::size_t other = 0; other < i; ++other)
          EXPECT_NE(results[other].local().storage(), results[i].local().storage());
      }
    }
  });
}

TEST(RepeatedCrossingTest, MeshesThatAreNewEachTimeAreNotKept) {
  run_world(4, [](int) {
    const DeviceMesh first("cpu", {0, 1});
    const Tensor x = two_halves(first, 8);
    for (int time = 0; time < 6; ++time) {
      std::weak_ptr<MeshBody> target;
      {
        const DeviceMesh fresh("cpu", {2, 3});
        target = fresh.body();
        expect_halves(x.redistribute(fresh, {Shard(0)}), 8);
        EXPECT_FALSE(goes_again_as_kept(x, fresh, {Shard(0)}));
      }
      EXPECT_TRUE(target.expired());
    }
    // There is room for one that does come again.
    const DeviceMesh second("cpu", {2, 3});
    for (int time = 0; time < 3; ++time) expect_halves(x.redistribute(second, {Shard(0)}), 8);
    EXPECT_TRUE(goes_again_as_kept(x, second, {Shard(0)}));
  });
}

TEST(RepeatedCrossingTest, OtherLinksOfEitherMeshEndIt) {
  run_world(4, [](int) {
    for (const bool is_target : {true, false}) {
      const DeviceMesh first("cpu", {0, 1}), second("cpu", {2, 3});
      const Tensor x = two_halves(first, 8);
      for (int time = 0; time < 3; ++time) x.redistribute(second, {Shard(0)});
      EXPECT_TRUE(goes_again_as_kept(x, second, {Shard(0)}));
      (is_target ? second : first).set_links({{1, 1e9}});
      EXPECT_FALSE(goes_again_as_kept(x, second, {Shard(0)}));
      for (int time = 0; time < 3; ++time) expect_halves(x.redistribute(second, {Shard(0)}), 8);
      EXPECT_TRUE(goes_again_as_kept(x, second, {Shard(0)}));
    }
  });
}

TEST(RepeatedCrossingTest, ItIsCountedAllowedAndRecordedAsTheFirst) {
  run_world(4, [](int) {
    const DeviceMesh first("cpu", {0, 1}), second("cpu", {2, 3});
    const Tensor x = two_halves(first, 8).requires_grad_();
    std::vector<std::string> counts;
    for (int time = 1; time <= 4; ++time) {
      const StrictScope strict;
      const CommCounter counter;
      const Tensor there = x.redistribute(second, {Shard(0)});
      counts.push_back(counter.to_string());
      EXPECT_EQ(there.grad_fn(), "redistribute");
      sum(there * time).backward();
    }
    EXPECT_TRUE(goes_again_as_kept(x, second, {Shard(0)}));
    EXPECT_EQ(counts, std::vector<std::string>(4, counts.front()));
    if (first.has_this_rank()) {
      EXPECT_EQ(x.grad().local().to_vector(), std::vector<double>(4, 1 + 2 + 3 + 4));
    }
    const NoGrad no_grad;
    EXPECT_FALSE(x.redistribute(second, {Shard(0)}).requires_grad());
  });
}

TEST(RepeatedCrossingTest, RanksThatRepeatDifferentMovesAreToldWhatEachAskedFor) {
  const auto thrown = test::run_failing_ranks(4, {}, [](const ProcessGroup& group) {
    collectives::set_default_group(&group);
    const DeviceMesh first("cpu", {0, 1}), second("cpu", {2, 3});
    const Tensor x = two_halves(first, 8), y = two_halves(first, 16);
    for (int time = 0; time < 3; ++time) {
      x.redistribute(second, {Shard(0)});
      y.redistribute(second, {Shard(0)});
    }
    // Who only sends goes on, and hears of it in its next call.
    (group.rank() == 0 ? x : y).redistribute(second, {Shard(0)});
    group.barrier();
  });
  for (const auto& mine : thrown) {
    ASSERT_TRUE(mine);
    EXPECT_EQ(mine->code, base::ErrorCode::kDisagreement) << mine->text;
    EXPECT_NE(mine->text.find("rank 0 called all_to_all"), std::string::npos) << mine->text;
  }
}

// The first time, from the third time on, when the move is kept, and when it is asynchronous.
TEST(MoveLogTest, EachMoveToAnotherMeshIsLoggedWithItsCause) {
  static std::mutex mutex;
  static std::multiset<std::string> lines;
  base::log::set_levels("+dtensor");
  base::log::set_writer([](const base::log::Line& line) {
    const std::lock_guard lock(mutex);
    const std::string text(line.message);
    // Of the file's path the name.
    const std::size_t name = text.find("repeated_crossing_test.cc"), at = text.find(" at ");
    lines.insert(name == std::string::npos ? text : text.substr(0, at + 4) + text.substr(name));
  });
  const int here = __LINE__;
  run_world(5, [](int rank) {
    const DeviceMesh stage0("cpu", {0, 1}, {"dp"}), stage1("cpu", {2, 3}, {"tp"});
    const Tensor x = two_halves(stage0, 8), terms = ones({2}, stage0, {Partial()});
    for (int time = 0; time < 4; ++time) x.redistribute(stage1, {Shard(0)});  // here + 4
    EXPECT_EQ(goes_again_as_kept(x, stage1, {Shard(0)}), rank < 4);
    x.redistribute_async(stage1, {Shard(0)}).wait();                         // here + 6
    terms.redistribute(stage1, {Replicate()});                               // here + 7
    if (stage0.has_this_rank()) x.redistribute_async({Replicate()}).wait();  // here + 8
    explain([&] { x.redistribute(stage1, {Replicate()}); });                 // nothing is done
  });
  base::log::set_writer(nullptr);
  base::log::set_levels("");
  const std::string file = "repeated_crossing_test.cc:";
  const auto of_line = [&](int line) { return file + std::to_string(here + line) + ": "; };
  const std::string halves = "f32[8] on (2): [S(0)] to [S(0)]",
                    there = " on DeviceMesh((tp=2), 'cpu', stride=(1,)): ",
                    messages = "messages between the meshes", sent = " (16 bytes sent)";
  std::multiset<std::string> expected;
  const auto expect_of_two = [&](const std::string& line) {
    for (int rank = 0; rank < 2; ++rank) expected.insert(line);
  };
  expect_of_two("ones: f32[2] from [R] to [P(sum)]: to_partial along dp");
  for (int time = 0; time < 4; ++time) {
    expect_of_two("redistribute at " + of_line(4) + halves + there + messages);
    expect_of_two("redistribute at " + of_line(4) + halves + there + messages + sent);
  }
  expect_of_two("redistribute_async at " + of_line(6) + halves + there + messages);
  expect_of_two("redistribute_async at " + of_line(6) + halves + there + messages + sent);
  const std::string sum = "redistribute at " + of_line(7) + "f32[2] on (2): [P(sum)] to [R]" +
                          there + "reduce_scatter along dp, " + messages;
  expect_of_two(sum);
  expect_of_two(sum + " (12 bytes sent)");
  expect_of_two("redistribute_async at " + of_line(8) +
                "f32[8] from [S(0)] to [R]: all_gather along dp (16 bytes sent)");
  EXPECT_EQ(lines, expected);
}

}  // namespace
}  // namespace dtrun::dtensor
