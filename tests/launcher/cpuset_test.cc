// dtrun inside a cpuset cgroup, of version 1 or 2, that leaves it one CPU of several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "dtrun/base/cpu_list.h"
#include "launcher/launcher_job.h"
#include "ranks/own_cgroup.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::CommandResult;

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool write(const std::string& path, const std::string& text) {
  return static_cast<bool>(std::ofstream(path) << text << std::flush);
}

// The folder of a new cgroup below this process's own whose processes have that CPU; "" and why
// not.
class Cpuset {
 public:
  explicit Cpuset(int cpu) {
    for (const char* controller : {"cpuset", ""}) {
      const CgroupPlace place = OwnCgroup().place(controller);
      if (place.folder.empty()) {
        why_not_ += place.why_not + "; ";
        continue;
      }
      folder_ = place.folder + "/dtrun_cpuset_" + std::to_string(::getpid());
      const std::string memory = content_of(place.folder + "/cpuset.mems.effective") +
                                 content_of(place.folder + "/cpuset.effective_mems");
      if (::mkdir(folder_.c_str(), 0755) == 0 &&
          write(folder_ + "/cpuset.cpus", std::to_string(cpu)) &&
          write(folder_ + "/cpuset.mems", memory))
        return;
      why_not_ += folder_ + " cannot be made; ";
      ::rmdir(folder_.c_str());
      folder_.clear();
    }
  }
  ~Cpuset() {
    if (!folder_.empty()) {
      EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "something is left in it";
    }
  }
  Cpuset(const Cpuset&) = delete;
  Cpuset& operator=(const Cpuset&) = delete;

  const std::string& folder() const { return folder_; }
  const std::string& why_not() const { return why_not_; }

  CommandResult run(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {
        "sh", "-c", "echo 0 >" + folder_ + "/cgroup.procs && exec \"$@\"", "sh", DTRUN_BINARY};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return testing_support::run_command(words);
  }

 private:
  std::string folder_;
  std::string why_not_;
};

TEST(CpusetTest, OneCpuOfSeveralIsAllThatRanksAreBoundTo) {
  const std::vector<int> cpus = base::allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "this machine has one CPU";
  const Cpuset cpuset(cpus.back());
  if (cpuset.folder().empty()) GTEST_SKIP() << "no cpuset can be made here: " << cpuset.why_not();
  const std::string cpu = std::to_string(cpus.back());
  const std::string show =
      "echo $LOCAL_WORLD_SIZE $OMP_NUM_THREADS $(sed -n 's/^Cpus_allowed_list:.//p' "
      "/proc/self/status)";

  for (const char* binding : {"exclusive", "node", "socket", "core-complex"}) {
    const CommandResult bound =
        cpuset.run({"--report_bindings", std::string("--numa-binding=") + binding,
                    "--omp-threads=share", "sh", "-c", show});
    EXPECT_THAT(bound.sorted_lines(), ElementsAre("1 1 " + cpu)) << bound.describe();
    EXPECT_THAT(bound.err, AllOf(HasSubstr("\n0           " + cpu + " "),
                                 testing::Not(HasSubstr("not bound"))))
        << bound.describe();
  }
  // As many ranks as CPUs is one, and what is not bound is bounded all the same.
  const CommandResult counted = cpuset.run(
      {"--report_bindings", "--nproc_per_node=cpu", "--omp-threads=share", "sh", "-c", show});
  EXPECT_THAT(counted.sorted_lines(), ElementsAre("1 1 " + cpu)) << counted.describe();
  EXPECT_THAT(counted.err, HasSubstr("0           " + cpu + " (not bound)")) << counted.describe();
  // Two ranks cannot have a core each, though the machine has two.
  const CommandResult refused =
      cpuset.run({"--nproc_per_node=2", "--numa-binding=exclusive", "true"});
  EXPECT_EQ(refused.exit_code, 64) << refused.describe();
  EXPECT_THAT(refused.err, HasSubstr("core")) << refused.describe();
}

}  // namespace
}  // namespace dtrun::launcher
