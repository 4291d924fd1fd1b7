#include "dtrun/base/cpu_list.h"

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

TEST(CpuList, ThisProcessMayUseSomeCpus) {
  EXPECT_FALSE(allowed_cpus().empty());
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
