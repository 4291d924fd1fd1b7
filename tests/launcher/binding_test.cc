#include "cpus/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two packages of two nodes each; a node has four cores of two threads and two caches: 32 CPUs,
// the second threads numbered from 16, as Linux does.
MachineTopology two_packages(std::vector<std::optional<int>> device_nodes = {}) {
  MachineTopology topology{.cpus = {}, .device_nodes = std::move(device_nodes)};
  for (int id = 0; id < 32; ++id) {
    const int core = id % 16;
    topology.cpus.push_back({id, core, core / 2 * 2, core / 4, core / 8});
  }
  return topology;
}

std::vector<int> first_cpus(const std::vector<RankBinding>& plan) {
  std::vector<int> result;
  for (const RankBinding& binding : plan) result.push_back(binding.cpus.front());
  return result;
}

TEST(Binding, ByNodeDealsRanksOutInBlocks) {
  const auto plan = plan_binding(two_packages(), BindingKind::kNode, 8);
  EXPECT_THAT(first_cpus(plan), ElementsAre(0, 0, 4, 4, 8, 8, 12, 12));
  EXPECT_THAT(plan[2].cpus, ElementsAre(4, 5, 6, 7, 20, 21, 22, 23));
  EXPECT_EQ(plan[2].memory_node, 1);
}

TEST(Binding, IsNearTheRanksDevice) {
  const auto plan = plan_binding(two_packages({3, 3, std::nullopt, 99}), BindingKind::kNode, 4);
  EXPECT_EQ(plan[0].memory_node, 3);
  EXPECT_EQ(plan[1].memory_node, 3);
  EXPECT_EQ(plan[2].memory_node, 2);
  EXPECT_EQ(plan[3].memory_node, 3);
}

TEST(Binding, BySocketTakesAllNodesOfThePackage) {
  const auto plan = plan_binding(two_packages(), BindingKind::kSocket, 2);
  EXPECT_EQ(plan[1].cpus.size(), 16u);
  EXPECT_EQ(plan[1].cpus.front(), 8);
}

TEST(Binding, ExclusiveSplitsTheNodesCoresAndKeepsThreadsTogether) {
  const auto plan = plan_binding(two_packages({0, 0, 0}), BindingKind::kExclusive, 3);
  EXPECT_THAT(plan[0].cpus, ElementsAre(0, 1, 16, 17));
  EXPECT_THAT(plan[1].cpus, ElementsAre(2, 18));
  EXPECT_THAT(plan[2].cpus, ElementsAre(3, 19));
  EXPECT_EQ(cores_of(two_packages(), plan[0]), 2);
}

TEST(Binding, ExclusiveRefusesMoreRanksThanCores) {
  const auto error = testing_support::error_of([] {
    plan_binding(two_packages({0, 0, 0, 0, 0}), BindingKind::kExclusive, 5);
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kUnavailable);
  EXPECT_THAT(error->what(), HasSubstr("5 ranks share a NUMA node of 4 cores"));
}

TEST(Binding, ByCoreComplexTakesOneCacheEach) {
  const auto plan = plan_binding(two_packages({0, 0, 0}), BindingKind::kCoreComplex, 3);
  EXPECT_THAT(plan[0].cpus, ElementsAre(0, 1, 16, 17));
  EXPECT_THAT(plan[1].cpus, ElementsAre(2, 3, 18, 19));
  EXPECT_EQ(plan[2], plan[0]);
}

TEST(Binding, MemoryThatTheCpusetForbidsIsNotBound) {
  RankBinding binding{.cpus = {4}, .memory_node = 1};
  EXPECT_EQ(drop_forbidden_memory({0, 1}, binding), "");
  EXPECT_EQ(drop_forbidden_memory({}, binding), "");
  EXPECT_EQ(binding.memory_node, 1);
  EXPECT_THAT(drop_forbidden_memory({0}, binding), HasSubstr("NUMA node 1"));
  EXPECT_EQ(binding.memory_node, std::nullopt);
}

// A cpuset of some CPUs of both packages: no rank gets another's, nor one outside of it.
TEST(Binding, StaysWithinWhatACpusetLeaves) {
  MachineTopology part = two_packages();
  std::erase_if(part.cpus, [](const Cpu& cpu) { return cpu.core % 4 != 1 || cpu.node == 1; });
  const auto by_node = plan_binding(part, BindingKind::kNode, 3);
  EXPECT_THAT(by_node[0].cpus, ElementsAre(1, 17));
  EXPECT_THAT(by_node[1].cpus, ElementsAre(9, 25));
  EXPECT_THAT(by_node[2].cpus, ElementsAre(13, 29));
  const auto by_socket = plan_binding(part, BindingKind::kSocket, 2);
  EXPECT_THAT(by_socket[1].cpus, ElementsAre(9, 13, 25, 29));
  // Its device's node has no CPU for us: as if it had no device.
  part.device_nodes = {1};
  EXPECT_EQ(plan_binding(part, BindingKind::kNode, 1)[0].memory_node, 0);
}

TEST(Binding, OneNodeNeedsNoMemoryPolicyAndNoneBindsNothing) {
  MachineTopology small;
  small.cpus = {{0, 0, 0, 0, 0}, {1, 1, 0, 0, 0}};
  EXPECT_EQ(plan_binding(small, BindingKind::kNode, 1)[0].memory_node, std::nullopt);
  EXPECT_EQ(plan_binding(small, BindingKind::kNone, 1)[0], RankBinding{});
  EXPECT_EQ(cores_of(small, RankBinding{}), 2);
}

}  // namespace
}  // namespace dtrun::launcher
