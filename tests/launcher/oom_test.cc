// A SIGKILL of the kernel's OOM killer is told from others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launcher/launcher_job.h"
#include "ranks/oom_counter.h"

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;
using testing_support::CommandResult;

class OomCounterTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = job_.folder() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  LauncherJob job_;
};

TEST_F(OomCounterTest, VersionTwoCountsInTheNearestCgroupThatKnowsOfMemory) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  write("/sys/fs/cgroup/a/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
  OomCounter counter{OwnCgroup(job_.folder())};
  EXPECT_FALSE(counter.claim_one());
  write("/sys/fs/cgroup/a/memory.events", "low 0\noom 3\noom_kill 4\n");
  EXPECT_TRUE(counter.claim_one());
  EXPECT_TRUE(counter.claim_one());
  EXPECT_FALSE(counter.claim_one());
}

// The controllers are not mounted where they mostly are, and what is mounted is a container's part.
TEST_F(OomCounterTest, VersionOneCountsInItsOwnTreeWhereverThatIsMounted) {
  write("/proc/self/cgroup", "4:cpu,memory:/docker/c/j\n0::/\n");
  write("/proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
        "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,pids\n"
        "32 23 0:28 /docker/c /cg/m rw - cgroup cgroup rw,cpu,memory\n");
  write("/sys/fs/cgroup/memory/j/memory.oom_control", "oom_kill_disable 0\noom_kill 0\n");
  write("/cg/m/j/memory.oom_control", "oom_kill_disable 0\noom_kill 0\n");
  OomCounter counter{OwnCgroup(job_.folder())};
  EXPECT_EQ(counter.file(), job_.folder() + "/cg/m/j/memory.oom_control");
}

TEST_F(OomCounterTest, WithoutACounterNoKillIsClaimed) {
  write("/proc/self/cgroup", "nonsense\n1:cpu:/x\n");
  OomCounter counter{OwnCgroup(job_.folder())};
  EXPECT_EQ(counter.file(), "");
  EXPECT_FALSE(counter.claim_one());
}

// In a memory cgroup of its own, of version 1 or 2, with room for dtrun under a sanitizer.
TEST(OomTest, ARankThatTheOomKillerEndsIsSaidToBeAndMayHaveACodeOfItsOwn) {
  const LauncherJob job;
  const std::string name = "/dtrun_oom_" + std::filesystem::path(job.folder()).filename().string();
  std::string folder;
  for (const char* mount : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    std::error_code no;
    const std::string limit =
        std::string(mount) == "/sys/fs/cgroup" ? "/memory.max" : "/memory.limit_in_bytes";
    if (!std::filesystem::create_directory(mount + name, no)) continue;
    if (std::ofstream(mount + name + limit) << "268435456" << std::flush)
      folder = mount + name;
    else
      std::filesystem::remove(mount + name, no);
    if (!folder.empty()) break;
  }
  if (folder.empty()) GTEST_SKIP() << "no memory cgroup can be made here";
  const CommandResult result = testing_support::run_command(
      {"sh", "-c", "echo 0 >" + folder + "/cgroup.procs && exec \"$@\"", "sh", DTRUN_BINARY,
       "--containment=guard", "--nproc_per_node=2", "--exit=map:oom=93", "sh", "-c",
       "[ $RANK = 1 ] && exec python3 -c 'x = bytearray(1 << 30)'; exec sleep 100"});
  std::error_code ignored;
  std::filesystem::remove(folder, ignored);
  EXPECT_EQ(result.exit_code, 93) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("rank 1 was ended by the kernel's OOM killer"));
}

}  // namespace
}  // namespace dtrun::launcher
