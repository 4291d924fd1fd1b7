// What the members of a group show one another: who brings a turn's last post, and that memory for
// posts is taken only where there can be posts.
#include "cpu/group_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "cpu/commons.h"
#include "cpu/group_block.h"
#include "dtrun/collectives/process_group.h"
#include "support/flat_tensors.h"
#include "support/rank_threads.h"

namespace dtrun::collectives::cpu {
namespace {

using Posts = GroupTable::Posts;

TEST(GroupTableTest, ATurnsLastPostIsTheLastInEachTurnOfAnySize) {
  for (const int members : {17, 33, 64}) {
    GroupTable::PostCounts counts{};
    for (int turn = 0; turn < 5; ++turn) {
      for (int post = 1; post < members; ++post) ASSERT_FALSE(counts.is_last(3, members));
      ASSERT_TRUE(counts.is_last(3, members));
      // Counts that grew would go around, and not at a multiple of every size.
      ASSERT_EQ(counts.of[3].load(), 0U);
    }
  }
}

std::size_t committed(int fd) {
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

/// Of all commons of this process.
std::size_t committed_here() {
  std::size_t all = 0;
  std::set<ino_t> seen;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (read_symlink(entry.path(), gone).string().find("memfd:dtrun-heap") == std::string::npos)
      continue;
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) == 0 && seen.insert(status.st_ino).second)
      all += static_cast<std::size_t>(status.st_blocks) * 512;
  }
  return all;
}

TEST(GroupTableTest, AWorldTakesMemoryForThePostsOfThoseWhoPost) {
  constexpr std::size_t kRanks = 256;
  const Commons commons = Commons::create(kRanks);
  const std::size_t without = committed(commons.fd());
  EXPECT_LT(without, kRanks * sizeof(Cell) + GroupTable::bytes(kRanks, Posts::none) + (16U << 10));
  for (int rank = 0; rank < static_cast<int>(kRanks); ++rank) commons.commit_posts(rank);
  const std::size_t posts =
      GroupTable::bytes(kRanks, Posts::all) - GroupTable::bytes(kRanks, Posts::none);
  EXPECT_GE(committed(commons.fd()), without + posts / 4096 * 4096);
}

/// @return what the splits of a world of 16 ranks into itself have committed
std::size_t committed_by_splits(const test::RankOptions& options) {
  constexpr int kSplits = 12;
  std::atomic<std::size_t> before{0}, after{0};
  test::run_ranks(16, options, [&](const ProcessGroup& group) {
    std::vector<int> all;
    for (int rank = 0; rank < group.size(); ++rank) all.push_back(rank);
    std::vector<ProcessGroup> groups = {group.split({all}, "first")};
    group.barrier();
    if (group.rank() == 0) before = committed_here();
    group.barrier();
    for (int split = 0; split < kSplits; ++split)
      groups.push_back(group.split({all}, "split" + std::to_string(split)));
    group.barrier();
    if (group.rank() == 0) after = committed_here();
    group.barrier();
    // They are as good as any.
    for (const ProcessGroup& each : groups) {
      const tensors::LocalTensor sum = test::flat_ones(100);
      each.all_reduce(sum);
      EXPECT_TRUE(equal(sum, test::flat_full(100, 16)));
    }
  });
  return after - before;
}

TEST(GroupTableTest, AGroupOverTwoMachinesTakesNoMemoryForPosts) {
  constexpr std::size_t kRanks = 16, kSplits = 12, kMachines = 2;
  const std::size_t blocks = kSplits * kRanks * GroupBlock::bytes(kRanks);
  // A heap grows in steps of 64 KiB.
  constexpr std::size_t kSteps = kRanks * (64 << 10);
  const std::size_t apart = committed_by_splits({.machines = {8, 8}});
  EXPECT_LT(apart, blocks + kSplits * kMachines * GroupTable::bytes(kRanks, Posts::none) + kSteps);
  const std::size_t together = committed_by_splits({});
  EXPECT_GT(together, kSplits * GroupTable::bytes(kRanks, Posts::all));
}

}  // namespace
}  // namespace dtrun::collectives::cpu
