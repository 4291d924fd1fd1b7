// Where one's own cgroup lies, on machines of all sorts.
#include "ranks/cgroup_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;

constexpr const char* kUnified =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kHybrid =
    "31 30 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(CgroupPlaceTest, IsBelowTheMount) {
  EXPECT_EQ(find_cgroup_place("0::/user.slice/a.scope\n", kUnified).folder,
            "/sys/fs/cgroup/user.slice/a.scope");
  EXPECT_EQ(find_cgroup_place("0::/\n", kUnified).folder, "/sys/fs/cgroup");
}

TEST(CgroupPlaceTest, IsInTheUnifiedPartOfAHybridMachine) {
  EXPECT_EQ(find_cgroup_place("8:pids:/x\n0::/y\n", kHybrid).folder, "/sys/fs/cgroup/unified/y");
}

TEST(CgroupPlaceTest, OfAContainerCountsFromWhatIsMountedThere) {
  constexpr const char* kPart = "40 39 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  EXPECT_EQ(find_cgroup_place("0::/docker/abc\n", kPart).folder, "/sys/fs/cgroup");
  EXPECT_EQ(find_cgroup_place("0::/docker/abc/job\n", kPart).folder, "/sys/fs/cgroup/job");
  const CgroupPlace other = find_cgroup_place("0::/docker/abcd\n", kPart);
  EXPECT_EQ(other.folder, "");
  EXPECT_THAT(other.why_not, HasSubstr("does not show this process's own cgroup /docker/abcd"));
}

TEST(CgroupPlaceTest, OutsideOfTheNamespaceCannotBeReached) {
  EXPECT_EQ(find_cgroup_place("0::/../other\n", kUnified).folder, "");
  constexpr const char* kOutside = "40 39 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
  EXPECT_EQ(find_cgroup_place("0::/\n", kOutside).folder, "");
}

TEST(CgroupPlaceTest, MayHaveABlankInItsName) {
  EXPECT_EQ(
      find_cgroup_place("0::/a b\n", "40 39 0:26 / /mnt/c\\040d rw - cgroup2 cgroup rw\n").folder,
      "/mnt/c d/a b");
}

TEST(CgroupPlaceTest, IsNowhereWithoutVersion2) {
  EXPECT_THAT(find_cgroup_place("8:pids:/x\n", kUnified).why_not, HasSubstr("version 2"));
  EXPECT_THAT(find_cgroup_place("", "").why_not, HasSubstr("no /proc"));
  EXPECT_THAT(find_cgroup_place("0::/x\n", "a b\n\n1 2 3 4 5 - \n").why_not,
              HasSubstr("is mounted"));
}

TEST(CgroupPlaceTest, OfVersion1IsInItsControllersOwnMount) {
  const CgroupPlace place =
      find_cgroup_place("9:cpu,pids:/x\n8:memory:/m\n0::/y\n", kHybrid, "pids");
  EXPECT_EQ(place.folder, "/sys/fs/cgroup/pids/x");
  EXPECT_EQ(place.mount, "/sys/fs/cgroup/pids");
  EXPECT_THAT(find_cgroup_place("8:memory:/m\n", kHybrid, "memory").why_not,
              HasSubstr("no file system of type cgroup with memory is mounted"));
  EXPECT_THAT(find_cgroup_place("8:memory:/m\n", kHybrid, "cpuset").why_not,
              HasSubstr("in no cgroup with cpuset of version 1"));
}

TEST(CgroupPlaceTest, ACgroupOfSlurmIsRecognised) {
  EXPECT_TRUE(
      find_cgroup_place("0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0\n", kUnified)
          .of_slurm);
  EXPECT_FALSE(find_cgroup_place("0::/x\n", kUnified).of_slurm);
}

}  // namespace
}  // namespace dtrun::launcher
