// What is more than a number and its close: the size of the kernel's table.
#include "dtrun/base/unique_fd.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace dtrun::base {
namespace {

std::size_t table_size() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "FDSize:") {
      std::size_t size = 0;
      status >> size;
      return size;
    }
  return 0;
}

// In a process of its own, whose table is as small as can be. Returns its size afterwards.
std::size_t size_after_reserving(std::size_t count, std::size_t limit) {
  Pipe pipe = make_pipe();
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = limit;
    ::setrlimit(RLIMIT_NOFILE, &files);
    reserve_descriptors(count);
    const std::size_t size = table_size();
    (void)!::write(pipe.write_end.get(), &size, sizeof size);
    ::_exit(0);
  }
  std::size_t size = 0;
  EXPECT_EQ(::read(pipe.read_end.get(), &size, sizeof size), static_cast<ssize_t>(sizeof size));
  ::waitpid(child, nullptr, 0);
  return size;
}

TEST(ReserveDescriptorsTest, TheTableIsAsLargeAsAskedForAtOnceButNotBeyondTheLimit) {
  EXPECT_LT(size_after_reserving(0, 1024), 900U);
  EXPECT_GE(size_after_reserving(900, 1024), 900U);
  EXPECT_GE(size_after_reserving(5000, 1000), 1000U);
  EXPECT_LT(size_after_reserving(5000, 1000), 5000U);
}

TEST(ReserveDescriptorsTest, NoNumberStaysInUse) {
  const UniqueFd before(::dup(1));
  reserve_descriptors(500);
  const UniqueFd after(::dup(1));
  EXPECT_EQ(after.get(), before.get() + 1);
}

}  // namespace
}  // namespace dtrun::base
