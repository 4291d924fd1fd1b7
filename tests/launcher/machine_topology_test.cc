// What hwloc tells of machines of many shapes, and of where CUDA's devices lie.
#include "cpus/machine_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "cpus/binding.h"
#include "cpus/cuda_devices.h"
#include "dtrun/base/cpu_list.h"
#include "dtrun/base/dynamic_library.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// While it stands, hwloc sees another machine.
class OtherMachine {
 public:
  OtherMachine(const char* variable, const std::string& value) : variable_(variable) {
    ::setenv(variable_, value.c_str(), 1);
  }
  ~OtherMachine() { ::unsetenv(variable_); }
  OtherMachine(const OtherMachine&) = delete;
  OtherMachine& operator=(const OtherMachine&) = delete;

 private:
  const char* const variable_;
};

std::vector<int> first_ids(int count) {
  std::vector<int> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

MachineTopology synthetic(const std::string& shape, const std::vector<int>& allowed) {
  const OtherMachine other("HWLOC_SYNTHETIC", shape);
  return read_machine(allowed, {});
}

std::size_t how_many(const MachineTopology& machine, int Cpu::*part) {
  std::set<int> numbers;
  for (const Cpu& cpu : machine.cpus) numbers.insert(cpu.*part);
  return numbers.size();
}

TEST(MachineTopologyTest, TwoSocketsOfFourNodesAreToldApart) {
  const MachineTopology machine =
      synthetic("pack:2 [numa] die:4 [numa] l3:2 core:2 pu:2", first_ids(64));
  EXPECT_EQ(machine.cpus.size(), 64U);
  EXPECT_EQ(how_many(machine, &Cpu::package), 2U);
  EXPECT_EQ(how_many(machine, &Cpu::cache), 16U);
  EXPECT_EQ(how_many(machine, &Cpu::core), 32U);
  const MachineTopology nodes = synthetic("numa:8 l3:2 core:2 pu:2", first_ids(64));
  EXPECT_EQ(how_many(nodes, &Cpu::node), 8U);
  EXPECT_EQ(nodes.cpus[63], (Cpu{.id = 63, .core = 62, .cache = 60, .node = 7, .package = 0}));
}

TEST(MachineTopologyTest, OneNodeWithoutSharedCachesIsOneNode) {
  const MachineTopology machine = synthetic("core:4 pu:1", first_ids(4));
  EXPECT_EQ(how_many(machine, &Cpu::node), 1U);
  EXPECT_EQ(how_many(machine, &Cpu::cache), 4U);
  EXPECT_EQ(machine.cpus[3], (Cpu{.id = 3, .core = 3, .cache = 3, .node = 0, .package = 0}));
}

TEST(MachineTopologyTest, OnlyAllowedCpusCountAndKeepTheNamesOfTheirCores) {
  const MachineTopology machine = synthetic("numa:2 l3:1 core:2 pu:2", {1, 6, 7, 99});
  EXPECT_THAT(machine.cpus,
              ElementsAre(Cpu{1, 0, 0, 0, 0}, Cpu{6, 6, 4, 1, 0}, Cpu{7, 6, 4, 1, 0}));
}

TEST(MachineTopologyTest, ThisMachineHasTheCpusOfThisProcess) {
  const std::vector<int> allowed = base::allowed_cpus();
  const MachineTopology machine = read_machine(allowed, {"0000:ff:1f.7"});
  std::vector<int> ids;
  for (const Cpu& cpu : machine.cpus) ids.push_back(cpu.id);
  EXPECT_EQ(ids, allowed);
  EXPECT_THAT(machine.device_nodes, ElementsAre(std::nullopt));
}

TEST(MachineTopologyTest, ADeviceIsNearTheNodeOfItsBridge) {
  // Two packages, each with a node, a CPU and a bridge with a GPU behind it.
  const OtherMachine other("HWLOC_XMLFILE",
                           DTRUN_SOURCE_DIR "/tests/launcher/two_packages_with_gpus.xml");
  // CUDA's order, not that of the addresses.
  const MachineTopology machine =
      read_machine({0, 1}, {"0000:AF:00.0", "0000:3b:00.0", "", "0000:99:00.0"});
  EXPECT_THAT(machine.device_nodes, ElementsAre(1, 0, std::nullopt, std::nullopt));
  const auto plan = plan_binding(machine, BindingKind::kNode, 2);
  EXPECT_THAT(plan[0].cpus, ElementsAre(1));
  EXPECT_THAT(plan[1].cpus, ElementsAre(0));
}

TEST(MachineTopologyTest, WhatHwlocCannotReadIsSaid) {
  const std::string file = testing::TempDir() + "no_machine.xml";
  std::ofstream(file) << "<topology version=\"2.0\"></topology>";
  const OtherMachine other("HWLOC_XMLFILE", file);
  const auto error = testing_support::error_of([] { read_machine({0}, {}); });
  std::filesystem::remove(file);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kSystem);
  EXPECT_THAT(error->what(), HasSubstr("hwloc cannot read the machine's topology"));
}

TEST(MachineTopologyTest, AMachineWithoutTheCpusOfThisProcessIsRefused) {
  const auto error = testing_support::error_of([] { synthetic("core:4 pu:1", {50, 51}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kSystem);
  EXPECT_THAT(error->what(), HasSubstr("hwloc knows no CPU that this process may use"));
  EXPECT_THAT(error->why(), HasSubstr("CPUs 50-51"));
}

// tests/launcher/cuda_driver.cc calls itself libcuda.so.1: it is what that name finds from now on.
TEST(CudaDevicesTest, AreTheDriversInTheDriversOrder) {
  const base::DynamicLibrary driver({DTRUN_CUDA_DRIVER});
  ASSERT_TRUE(driver.opened()) << driver.reason();
  EXPECT_THAT(visible_cuda_devices(), ElementsAre("0000:af:00.0", "", "0000:3b:00.0"));
}

}  // namespace
}  // namespace dtrun::launcher
