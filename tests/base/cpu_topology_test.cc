#include "dtrun/base/cpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "dtrun/base/cpu_quota.h"
#include "support/thrown_error.h"

namespace dtrun::base {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CpuList, IsReadAndWrittenAsTheKernelDoes) {
  EXPECT_THAT(parse_cpu_list("8,0-2,1"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_EQ(format_cpu_list({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(format_cpu_list({}), "");
}

TEST(CpuList, RefusesWhatIsNone) {
  for (const char* text : {"x", "1-", "-1", "3-1", "1,,2", "99999999", "0-99999999"}) {
    const auto error = testing_support::error_of([&] { parse_cpu_list(text); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(error->what(), HasSubstr(text));
  }
}

TEST(CpuTopology, IsReadFromATreeLikeSysfs) {
  std::string name = testing::TempDir() + "topologyXXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::filesystem::path root = name;
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << "\n";
  };
  for (const int cpu : {0, 1, 2, 3}) {
    const std::string folder = "cpu/cpu" + std::to_string(cpu) + "/";
    write(folder + "topology/thread_siblings_list", cpu % 2 == 0 ? "0,2" : "1,3");
    write(folder + "topology/physical_package_id", cpu % 2 == 0 ? "0" : "1");
    write(folder + "cache/index0/shared_cpu_list", std::to_string(cpu));
    write(folder + "cache/index1/shared_cpu_list", "0-3");
    std::filesystem::create_directories(root / folder / (cpu % 2 == 0 ? "node0" : "node1"));
  }
  const CpuTopology topology = CpuTopology::read(root, {0, 1, 3, 7});
  std::filesystem::remove_all(root);
  EXPECT_THAT(topology.cpus, ElementsAre(Cpu{0, 0, 0, 0, 0}, Cpu{1, 1, 0, 1, 1}, Cpu{3, 1, 0, 1, 1},
                                         Cpu{7, 7, 7, 0, 0}));
}

TEST(CpuTopology, OfThisProcessHasItsCpus) {
  const CpuTopology topology = CpuTopology::of_this_process();
  EXPECT_EQ(topology.cpus.size(), allowed_cpus().size());
  EXPECT_FALSE(topology.cpus.empty());
}

TEST(CpuQuotaTest, TheNarrowestQuotaOfTheCgroupsCounts) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("dtrun-quota-" + std::to_string(::getpid()));
  std::filesystem::create_directories(root / "a" / "b");
  std::ofstream(root / "a" / "cpu.max") << "150000 100000\n";
  std::ofstream(root / "a" / "b" / "cpu.max") << "max 100000\n";
  const std::string membership = root / "membership";
  std::ofstream(membership) << "1:name=systemd:/x\n0::/a/b\n";
  const std::optional<CpuQuota> quota = cpu_quota(root.c_str(), membership.c_str());
  std::ofstream(root / "a" / "cpu.max") << "max 100000\n";
  const bool unlimited = !cpu_quota(root.c_str(), membership.c_str());
  std::filesystem::remove_all(root);
  ASSERT_TRUE(quota.has_value());
  EXPECT_EQ(quota->cpus, 1.5);
  EXPECT_NE(quota->cgroup, 0U);
  EXPECT_TRUE(unlimited);
}

}  // namespace
}  // namespace dtrun::base
