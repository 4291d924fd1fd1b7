#include "dtrun/dtensor/mesh/device_mesh.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using tensors::DType;

TEST(DeviceMeshTest, RanksStandAtTheirRowMajorCoordinates) {
  test::run_ranks(6, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3, 2}, {"dp", "tp"});
    const int rank = group.rank();
    EXPECT_EQ(mesh.rank(), rank);
    EXPECT_EQ(mesh.size(), 6);
    EXPECT_EQ(mesh.ndim(), 2);
    EXPECT_EQ(mesh.size(0), 3);
    EXPECT_EQ(mesh.size(1), 2);
    EXPECT_EQ(mesh.coordinate(), (std::vector<int>{rank / 2, rank % 2}));
    EXPECT_EQ(mesh.local_rank(0), rank / 2);
    EXPECT_EQ(mesh.coordinate_of(5), (std::vector<int>{2, 1}));
    EXPECT_EQ(mesh.axis_index("tp"), 1);
    EXPECT_EQ(mesh.axis_names(), (std::vector<std::string>{"dp", "tp"}));
    EXPECT_EQ(mesh.device_type(), tensors::DeviceType::cpu);
  });
}

// The sum of the ranks that differ from this one along the axis alone, this one included.
int sum_of_line(const DeviceMesh& mesh, int axis) {
  int sum = 0;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::vector<int> coordinate = mesh.coordinate_of(rank);
    coordinate[static_cast<std::size_t>(axis)] = mesh.local_rank(axis);
    if (coordinate == mesh.coordinate()) sum += rank;
  }
  return sum;
}

TEST(DeviceMeshTest, AnAxisThatLeavesTheMachineCostsWhatANetworkDoes) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    EXPECT_EQ(group.machines(), (std::vector<int>{0, 0, 0, 0}));
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh.links(), std::vector<LinkRate>(2, kSharedMemoryLink));
    mesh.set_links({{1e-3, 1e6}, kSharedMemoryLink});
    EXPECT_EQ(mesh["dp"].links(), (std::vector<LinkRate>{{1e-3, 1e6}}));
    // 2 of 4 KiB at 1 MB/s.
    const Tensor x = ones({1024}, mesh, {Shard(0), Replicate()});
    EXPECT_NEAR(explain(x, {Replicate(), Replicate()}).chosen.cost.seconds, 3.05e-3, 1e-5);
    expect_refused([&] { mesh.set_links({kNetworkLink}); }, "1 links do not fit");
    expect_refused([&] { mesh.set_links({kNetworkLink, {0, 1}}); }, "a rate above 0");
  });
  test::run_ranks(2, {.transport = collectives::Transport::tcp}, [](const ProcessGroup& group) {
    EXPECT_EQ(group.machines(), (std::vector<int>{0, 1}));
    EXPECT_EQ(DeviceMesh(group, {2, 1}).links(),
              (std::vector<LinkRate>{kNetworkLink, kSharedMemoryLink}));
  });
}

TEST(DeviceMeshTest, AxesHaveTheLinksOfTheGroupsCostTable) {
  const std::string costs = R"({"tp": {"latency": 2e-5, "bytes_per_second": 1e9},
                                "collectives": {"post_bytes": 8}})";
  test::run_ranks(4, {.costs = costs}, [](const ProcessGroup& group) {
    const LinkRate measured{2e-5, 1e9};
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh.links(), (std::vector<LinkRate>{kSharedMemoryLink, measured}));
    EXPECT_EQ(mesh["tp"].links(), (std::vector<LinkRate>{measured}));
    // What else is in the file is no axis.
    const DeviceMesh other(group, {4}, {"collectives"});
    EXPECT_EQ(other.links(), (std::vector<LinkRate>{kSharedMemoryLink}));
  });
  // A number is an axis of the mesh that was laid out, not of what is made of its axes.
  const std::string numbered = R"({"0": {"latency": 2e-5, "bytes_per_second": 1e9},
                                   "1": {"latency": 1e-5, "bytes_per_second": 1e8},
                                   "all": {"latency": 3e-5, "bytes_per_second": 2e8}})";
  test::run_ranks(4, {.costs = numbered}, [](const ProcessGroup& group) {
    const LinkRate first{2e-5, 1e9}, second{1e-5, 1e8};
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh.links(), (std::vector<LinkRate>{first, second}));
    EXPECT_EQ(mesh["tp"].links(), (std::vector<LinkRate>{second}));
    EXPECT_EQ((mesh[{"tp", "dp"}].links()), (std::vector<LinkRate>{second, first}));
    // Each message of the flattened axis may take the slower way.
    EXPECT_EQ(mesh.flatten().links(), (std::vector<LinkRate>{{2e-5, 1e8}}));
    EXPECT_EQ(mesh["dp_tp"].links(), (std::vector<LinkRate>{{2e-5, 1e8}}));
    EXPECT_EQ(mesh.flatten({}, "all").links(), (std::vector<LinkRate>{{3e-5, 2e8}}));
    const DeviceMesh line(group, {4}, {"world"});
    EXPECT_EQ(line.unflatten("world", {2, 2}, {"node", "gpu"}).links(),
              (std::vector<LinkRate>{kSharedMemoryLink, kSharedMemoryLink}));
  });
  // What is for all others is so for its parts.
  const std::string others = R"({"dp": {"latency": 2e-5, "bytes_per_second": 1e9},
                                 "*": {"latency": 3e-6, "bytes_per_second": 4e9}})";
  test::run_ranks(4, {.costs = others}, [](const ProcessGroup& group) {
    const LinkRate slow{2e-5, 1e9}, fast{3e-6, 4e9};
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh.links(), (std::vector<LinkRate>{slow, fast}));
    EXPECT_EQ(mesh.flatten().links(), (std::vector<LinkRate>{slow}));
    mesh.set_links({fast, fast});
    EXPECT_EQ(mesh.flatten().links(), (std::vector<LinkRate>{fast}));
    EXPECT_EQ(mesh["dp_tp"].links(), (std::vector<LinkRate>{fast}));
  });
  const std::string broken = R"({"dp": {"latency": 2e-5}})";
  test::run_ranks(2, {.costs = broken}, [](const ProcessGroup& group) {
    expect_refused([&] { DeviceMesh(group, {2}, {"dp"}); }, "costs.json has no link at \"dp\"");
  });
}

TEST(DeviceMeshTest, EveryLineOfEveryAxisHasItsOwnGroup) {
  for (const std::vector<int>& shape :
       std::vector<std::vector<int>>{{3, 2}, {2, 2, 2}, {2, 3, 1, 2}}) {
    const int size = std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>());
    test::run_ranks(size, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, shape);
      for (int axis = 0; axis < mesh.ndim(); ++axis) {
        const ProcessGroup& line = mesh.group(axis);
        EXPECT_EQ(line.size(), shape[static_cast<std::size_t>(axis)]);
        EXPECT_EQ(line.rank(), mesh.local_rank(axis));
        const tensors::LocalTensor sum = tensors::full({1}, group.rank(), {.dtype = DType::i64});
        line.all_reduce(sum);
        EXPECT_EQ(sum.item(), sum_of_line(mesh, axis));
      }
      EXPECT_EQ(mesh.group().size(), size);
    });
  }
}

TEST(DeviceMeshTest, AnAxisAsLongAsTheGroupUsesTheGroupItself) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh line(group, {2});
    EXPECT_EQ(line.group(0).name(), group.name());
    const DeviceMesh flat(group, {1, 2});
    EXPECT_EQ(flat.group(1).name(), group.name());
    EXPECT_EQ(flat.group(0).size(), 1);
  });
}

TEST(DeviceMeshTest, ReprIsThatOfPyTorch) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    EXPECT_EQ(DeviceMesh(group, {4}).to_string(), "DeviceMesh((4,), 'cpu', stride=(1,))");
    EXPECT_EQ(DeviceMesh(group, {4}, {"dp"}).to_string(), "DeviceMesh((dp=4), 'cpu', stride=(1,))");
    EXPECT_EQ(DeviceMesh(group, {2, 2}).to_string(), "DeviceMesh((2, 2), 'cpu', stride=(2, 1))");
    EXPECT_EQ(DeviceMesh(group, {2, 2}, {"dp", "tp"}).to_string(),
              "DeviceMesh((dp=2, tp=2), 'cpu', stride=(2, 1))");
  });
}

TEST(DeviceMeshTest, MeshesAreEqualByRanksShapeNamesAndDeviceType) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2}, {"a", "b"});
    const DeviceMesh copy = mesh;
    EXPECT_EQ(mesh, copy);
    EXPECT_EQ(mesh, DeviceMesh(group, {2, 2}, {"a", "b"}));
    EXPECT_FALSE(mesh == DeviceMesh(group, {2, 2}));
    EXPECT_FALSE(mesh == DeviceMesh(group, {4}));
    EXPECT_FALSE(DeviceMesh(group, {4}) == DeviceMesh(group, {4}, {}, tensors::DeviceType::cuda));
    EXPECT_FALSE(mesh == DeviceMesh());
    EXPECT_EQ(DeviceMesh(), DeviceMesh());
  });
}

TEST(DeviceMeshTest, WhatDoesNotFitIsRefusedBeforeAnyoneIsInvolved) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    expect_refused([&] { DeviceMesh(group, {3}); }, "the group has 4 ranks");
    expect_refused([&] { DeviceMesh(group, {3, 2}); }, "whose product is 4");
    expect_refused([&] { DeviceMesh(group, {4, 0}); }, "at least one rank");
    expect_refused([&] { DeviceMesh(group, {}); }, "cannot have 0 axes");
    expect_refused([&] { DeviceMesh(group, {4, 1, 1, 1, 1, 1, 1, 1, 1}); }, "cannot have 9 axes");
    expect_refused([&] { DeviceMesh(group, {2, 2}, {"dp"}); }, "one name per axis");
    expect_refused([&] { DeviceMesh(group, {2, 2}, {"dp", "dp"}); }, "'dp' cannot name");
    expect_refused([&] { DeviceMesh(group, {2, 2}, {"dp", ""}); }, "'' cannot name");
    expect_refused([&] { DeviceMesh(ProcessGroup(), {1}); }, "no group");
    const DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    expect_refused([&] { mesh.axis_index("pp"); }, "its axes are dp, tp");
    expect_refused([&] { mesh.group(2); }, "no axis 2");
    expect_refused([&] { mesh.coordinate_of(4); }, "no rank 4");
    expect_refused([&] { DeviceMesh(group, {4}).axis_index("dp"); }, "have no names");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
