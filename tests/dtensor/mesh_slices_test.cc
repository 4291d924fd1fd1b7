// Meshes of some of the ranks, and meshes that are made of another one's axes.
#include <gtest/gtest.h>

#include "dtensor/rank_world.h"
#include "dtensor/refusal.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

using Ints = std::vector<int>;
using Names = std::vector<std::string>;

/// The sum of the global ranks of the group, by a collective of it.
std::int64_t sum_of_ranks(const ProcessGroup& group, int rank) {
  const tensors::LocalTensor sum = tensors::full({1}, rank, {.dtype = tensors::DType::i64});
  group.all_reduce(sum);
  return static_cast<std::int64_t>(sum.item());
}

TEST(RankGridTest, IsWrittenAsListsVectorsAndTensors) {
  EXPECT_EQ(RankGrid({0, 1, 2}).shape(), (Ints{3}));
  const RankGrid grid{{0, 1, 2}, {3, 4, 5}};
  EXPECT_EQ(grid.shape(), (Ints{2, 3}));
  EXPECT_EQ(grid.ranks(), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ((RankGrid{{{0}, {1}}, {{2}, {3}}}).shape(), (Ints{2, 2, 1}));
  EXPECT_EQ(RankGrid(Ints{4, 2}).ranks(), (Ints{4, 2}));
  EXPECT_EQ(RankGrid(arange(4)).ranks(), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(RankGrid(arange(6).reshape({2, 3})).shape(), (Ints{2, 3}));
  expect_refused([] { RankGrid{{0, 1}, {2}}; }, "not of one length");
}

TEST(MeshSlicesTest, AMeshOfADeviceNameAndRanks) {
  run_world(4, [](int rank) {
    const DeviceMesh all("cpu", arange(4));
    EXPECT_EQ(all.shape(), (Ints{4}));
    EXPECT_EQ(all.rank(), rank);
    const DeviceMesh grid("cpu", {{0, 1}, {2, 3}}, {"dp", "tp"});
    EXPECT_EQ(grid.coordinate(), (Ints{rank / 2, rank % 2}));
    EXPECT_EQ(grid.local_rank("tp"), rank % 2);
    EXPECT_EQ(grid.size("dp"), 2);
    EXPECT_EQ(grid.group("tp").size(), 2);
    EXPECT_EQ(grid.all_groups().size(), 2U);
    EXPECT_EQ(grid.to_string(), "DeviceMesh((dp=2, tp=2), 'cpu', stride=(2, 1))");
  });
}

TEST(MeshSlicesTest, ColossalAisMeshOfRanksAndAShape) {
  run_world(4, [](int rank) {
    const auto physical_mesh_id = arange(0, 4);
    const Ints mesh_shape = {2, 2};
    const DeviceMesh mesh(physical_mesh_id, mesh_shape, {.init_process_group = true});
    EXPECT_EQ(mesh.coordinate(), (Ints{rank / 2, rank % 2}));
    EXPECT_EQ(mesh.device_type(), tensors::DeviceType::cpu);
    // Without groups from the start, members make them when they need them.
    const DeviceMesh later({3, 2, 1, 0}, {2, 2}, {.init_process_group = false});
    if (rank < 2) {
      EXPECT_EQ(later.coordinate(), (Ints{1, 1 - rank}));
      EXPECT_EQ(later.group(1).global_ranks(), (Ints{1, 0}));
      EXPECT_EQ(sum_of_ranks(later.group(1), rank), 1);
    }
  });
}

TEST(MeshSlicesTest, RanksMayStandInAnyOrder) {
  run_world(4, [](int rank) {
    const DeviceMesh mesh("cpu", {{3, 1}, {0, 2}});
    const Ints expected[] = {{1, 0}, {0, 1}, {1, 1}, {0, 0}};
    EXPECT_EQ(mesh.coordinate(), expected[rank]);
    EXPECT_EQ(mesh.group(0).rank(), mesh.local_rank(0));
    EXPECT_EQ(mesh.group().rank(), mesh.rank());
    EXPECT_EQ(mesh.group().global_ranks(), (Ints{3, 1, 0, 2}));
    const Tensor x = distribute_tensor(arange(8), mesh, {Shard(0), Shard(0)});
    EXPECT_EQ(x.to_local().to_vector()[0], 2 * mesh.rank());
    EXPECT_EQ(x.to_vector(), arange(8).to_vector());
    // Reduced over a permuted world, rank by rank of the mesh.
    EXPECT_EQ(DeviceMesh("cpu", {1, 0, 3, 2}).group(0).global_ranks(), (Ints{1, 0, 3, 2}));
  });
}

TEST(MeshSlicesTest, MeshesOfOneLineShareItsGroup) {
  run_world(4, [](int) {
    const DeviceMesh a("cpu", {{0, 1}, {2, 3}}), b("cpu", {{0, 1}, {2, 3}}, {"dp", "tp"});
    EXPECT_EQ(a.group(0), b.group(0));
    EXPECT_EQ(a.group(1), b["tp"].group());
    EXPECT_EQ(b["tp"].group(0), b.group("tp"));
    EXPECT_EQ(b.flatten().group(), b.group());
    EXPECT_EQ(b["tp"].body(), b["tp"].body());  // the same mesh: its specs and plans are shared
  });
}

TEST(MeshSlicesTest, SlicesAreTakenByNameInAnyOrder) {
  run_world(8, [](int rank) {
    const DeviceMesh mesh("cpu", arange(8).reshape({2, 2, 2}), {"pp", "dp", "tp"});
    EXPECT_EQ(mesh["dp"].shape(), (Ints{2}));
    EXPECT_EQ(mesh["dp"].ranks(), (Ints{rank & 5, rank | 2}));
    const DeviceMesh plane = mesh[{"tp", "pp"}];
    EXPECT_EQ(plane.shape(), (Ints{2, 2}));
    const int first = rank & 2;
    EXPECT_EQ(plane.ranks(), (Ints{first, first + 4, first + 1, first + 5}));
    EXPECT_EQ(plane.coordinate(), (Ints{rank & 1, rank >> 2}));
    EXPECT_EQ(plane.to_string(), "DeviceMesh((tp=2, pp=2), 'cpu', stride=(1, 4))");
    EXPECT_EQ(plane.group("pp"), mesh.group("pp"));
    EXPECT_EQ(plane["pp"].ranks(), mesh["pp"].ranks());
    EXPECT_EQ(sum_of_ranks(plane.group(), rank), 4 * first + 10);
    const Tensor x = distribute_tensor(arange(6), plane, {Shard(0), Partial()}, {.source_rank = 0});
    EXPECT_EQ(x.to_vector(), arange(6).to_vector());
  });
}

TEST(MeshSlicesTest, AxesAreFlattenedAndSplit) {
  run_world(8, [](int rank) {
    const DeviceMesh mesh("cpu", arange(8).reshape({2, 2, 2}), {"pp", "dp", "tp"});
    const DeviceMesh flat = mesh.flatten({"pp", "tp"});
    EXPECT_EQ(flat.to_string(), "DeviceMesh((pp_tp=4), 'cpu', stride=((4, 1),))");
    const int first = rank & 2;
    EXPECT_EQ(flat.ranks(), (Ints{first, first + 1, first + 4, first + 5}));
    EXPECT_EQ(mesh["pp_tp"], flat);
    EXPECT_EQ((mesh[{"pp_tp", "dp"}].shape()), (Ints{4, 2}));
    EXPECT_EQ(sum_of_ranks(flat.group(), rank), 4 * first + 10);
    EXPECT_EQ(mesh.flatten({}, "world").ranks(), mesh.ranks());
    EXPECT_EQ(mesh.flatten({"dp", "tp"}).to_string(), "DeviceMesh((dp_tp=4), 'cpu', stride=(1,))");

    const DeviceMesh line("cpu", arange(8), {"world"});
    const DeviceMesh split = line.unflatten("world", {2, 4}, {"node", "gpu"});
    EXPECT_EQ(split.shape(), (Ints{2, 4}));
    EXPECT_EQ(split.coordinate(), (Ints{rank / 4, rank % 4}));
    EXPECT_EQ(sum_of_ranks(split.group("gpu"), rank), rank < 4 ? 6 : 22);
    EXPECT_EQ(flat.unflatten("pp_tp", {2, 2}, {"a", "b"})["b"].ranks(), mesh["tp"].ranks());
  });
}

TEST(MeshSlicesTest, AMeshOfFourAxesIsSlicedFlattenedSplitAndConcatenated) {
  run_world(16, [](int rank) {
    const DeviceMesh mesh("cpu", arange(16).reshape({2, 2, 2, 2}), {"pp", "dp", "cp", "tp"});
    EXPECT_EQ(mesh.coordinate(), (Ints{rank >> 3, rank >> 2 & 1, rank >> 1 & 1, rank & 1}));
    const DeviceMesh three = mesh[{"tp", "pp", "cp"}];
    EXPECT_EQ(three.to_string(), "DeviceMesh((tp=2, pp=2, cp=2), 'cpu', stride=(1, 8, 2))");
    EXPECT_EQ(three.coordinate(), (Ints{rank & 1, rank >> 3, rank >> 1 & 1}));
    const int first = rank & 4;
    EXPECT_EQ(three.ranks(), (Ints{first, first + 2, first + 8, first + 10, first + 1, first + 3,
                                   first + 9, first + 11}));
    EXPECT_EQ(three.group("cp"), mesh.group("cp"));
    EXPECT_EQ(sum_of_ranks(three.group(), rank), 8 * first + 44);
    EXPECT_EQ((three[{"cp", "tp"}].ranks()), (mesh[{"cp", "tp"}].ranks()));

    const DeviceMesh flat = mesh.flatten({"pp", "cp"});
    const int corner = rank & 5;
    EXPECT_EQ(flat.to_string(), "DeviceMesh((pp_cp=4), 'cpu', stride=((8, 2),))");
    EXPECT_EQ(flat.ranks(), (Ints{corner, corner + 2, corner + 8, corner + 10}));
    EXPECT_EQ(sum_of_ranks(flat.group(), rank), 4 * corner + 20);
    const DeviceMesh mixed = mesh[{"dp", "pp_cp", "tp"}];
    EXPECT_EQ(mixed.shape(), (Ints{2, 4, 2}));
    EXPECT_EQ(mixed.coordinate(),
              (Ints{rank >> 2 & 1, rank >> 3 << 1 | (rank >> 1 & 1), rank & 1}));
    EXPECT_EQ(flat.unflatten("pp_cp", {2, 2}, {"a", "b"})["b"].ranks(), mesh["cp"].ranks());
    EXPECT_EQ(mesh.flatten({}, "world").ranks(), mesh.ranks());

    const DeviceMesh line("cpu", arange(16), {"world"});
    const DeviceMesh split = line.unflatten("world", {2, 2, 2, 2}, {"pp", "dp", "cp", "tp"});
    EXPECT_EQ(split.coordinate(), mesh.coordinate());
    EXPECT_EQ(split.group("dp").global_ranks(), mesh.group("dp").global_ranks());
    EXPECT_EQ(sum_of_ranks(split.group("dp"), rank), 2 * (rank & 11) + 4);

    EXPECT_EQ(DeviceMesh::concatenate({mesh[{"tp", "dp"}], mesh["pp"]}),
              (mesh[{"tp", "dp", "pp"}]));
    const DeviceMesh turned = DeviceMesh::concatenate({mesh["tp"], mesh[{"cp", "dp"}], mesh["pp"]});
    EXPECT_EQ(turned.coordinate(), (Ints{rank & 1, rank >> 1 & 1, rank >> 2 & 1, rank >> 3}));
    // What lies on them is whole.
    const Tensor whole = arange(16 * 3).reshape({16, 3});
    for (const DeviceMesh& on : {three, mixed, split, turned}) {
      Placements placements(static_cast<std::size_t>(on.ndim()), Shard(0));
      placements.back() = Partial();
      EXPECT_TRUE(equal(distribute_tensor(whole, on, placements, {.source_rank = -1}), whole));
    }
    const DeviceMesh of_group =
        DeviceMesh::from_group(collectives::default_group(), "cpu", {"all"});
    EXPECT_EQ(of_group.unflatten("all", {2, 2, 2, 2}, {"a", "b", "c", "d"}).coordinate(),
              mesh.coordinate());
    EXPECT_EQ(DeviceMesh::from_groups(
                  {mesh.group("pp"), mesh.group("dp"), mesh.group("cp"), mesh.group("tp")}, "cpu",
                  arange(16).reshape({2, 2, 2, 2}))
                  .coordinate(),
              mesh.coordinate());
  });
}

TEST(MeshSlicesTest, SlicesOfOneMeshAreConcatenated) {
  run_world(8, [](int) {
    const DeviceMesh mesh("cpu", arange(8).reshape({2, 2, 2}), {"pp", "dp", "tp"});
    EXPECT_EQ(DeviceMesh::concatenate({mesh["tp"], mesh["pp"]}), (mesh[{"tp", "pp"}]));
    EXPECT_EQ(DeviceMesh::concatenate({mesh[{"dp", "tp"}], mesh["pp"]}).size(), 8);
    const DeviceMesh other("cpu", arange(8).reshape({2, 4}), {"a", "b"});
    expect_refused(
        [&] {
          DeviceMesh::concatenate({mesh["tp"], other["a"]});
        },
        "not slices of one mesh");
    expect_refused([&] { DeviceMesh::concatenate({mesh["tp"], mesh["tp"]}); }, "overlap");
    expect_refused([&] { DeviceMesh::concatenate({}); }, "no meshes");
  });
}

TEST(MeshSlicesTest, GroupsThatAreThereAreUsedAsTheyAre) {
  run_world(4, [](int rank) {
    const ProcessGroup& world = collectives::default_group();
    const ProcessGroup rows = world.split({{0, 1}, {2, 3}}, "rows");
    const ProcessGroup columns = world.split({{0, 2}, {1, 3}}, "columns");
    const DeviceMesh line = DeviceMesh::from_group(rows, "cpu", {"tp"});
    EXPECT_EQ(line.group("tp"), rows);
    EXPECT_EQ(line.size(), 2);
    const DeviceMesh grid =
        DeviceMesh::from_groups({columns, rows}, "cpu", {{0, 1}, {2, 3}}, {"dp", "tp"});
    EXPECT_EQ(grid.group("dp"), columns);
    EXPECT_EQ(grid.coordinate(), (Ints{rank / 2, rank % 2}));
    expect_refused(
        [&] {
          DeviceMesh::from_groups({rows, columns}, "cpu", {{0, 1}, {2, 3}}, {"dp", "tp"});
        },
        "is not axis 0");
    expect_refused(
        [&] {
          DeviceMesh::from_groups({rows}, "cpu", {{0, 1}, {2, 3}});
        },
        "one group per axis");
  });
}

TEST(MeshSlicesTest, WhatMakesNoMeshIsRefusedOnEveryRank) {
  run_world(4, [](int) {
    const DeviceMesh mesh("cpu", {{0, 1}, {2, 3}}, {"dp", "tp"});
    expect_refused([&] { mesh["pp"]; }, "its axes are dp, tp");
    expect_refused([&] { mesh[{"dp", "dp"}]; }, "overlap");
    expect_refused([&] { mesh.flatten({"dp", "tp"}, "tp"); }, "choose another name");
    mesh.flatten({"dp", "tp"}, "both");
    expect_refused([&] { mesh.flatten({"tp", "dp"}, "both"); }, "choose another name");
    expect_refused([&] { mesh[{"both", "tp"}]; }, "overlap");
    expect_refused([&] { mesh.unflatten("tp", {3}, {"a"}); }, "it has 2 ranks");
    expect_refused([&] { mesh.unflatten("tp", {2, 1}, {"a"}); }, "one name per size");
    expect_refused([&] { mesh.unflatten("tp", {2, 1}, {"a", "dp"}); }, "'dp' cannot name");
    expect_refused([&] { DeviceMesh("cpu", {0, 1, 2, 3})["dp"]; }, "no names");
    expect_refused([&] { DeviceMesh("cpu", {0, 4}); }, "the ranks 0 to 3");
    expect_refused([&] { DeviceMesh("cpu", {0, 0}); }, "stands twice");
    expect_refused([&] { DeviceMesh({0, 1, 2}, Ints{2, 2}); }, "there are 3 ranks");
    expect_refused([&] { DeviceMesh("tpu", {0, 1}); }, "tpu", base::ErrorCode::kInvalidArgument);
  });
  expect_refused(
      [] {
        DeviceMesh("cpu", {0, 1});
      },
      "call dist::init_process_group() first", base::ErrorCode::kUsage);
}

TEST(MeshSlicesTest, AMemberAsksForAGroupThatAnotherIsNoMemberOf) {
  run_world(3, [](int rank) {
    const ProcessGroup& world = collectives::default_group();
    if (rank == 2) {
      expect_refused([&] { world.subgroup({0, 1}, "pair"); }, "rank 2 is no member of");
      return;
    }
    EXPECT_EQ(world.subgroup({1, 0}, "pair").rank(), 1 - rank);
    EXPECT_EQ(world.subgroup({1, 0}, "again"), world.subgroup({1, 0}, "pair"));
    EXPECT_FALSE(world.subgroup({0, 1}, "pair") == world.subgroup({1, 0}, "pair"));
  });
}

}  // namespace
}  // namespace dtrun::dtensor
