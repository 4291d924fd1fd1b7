// Ranks whose kernel lets nobody read another process's memory, as seccomp filters of containers do
// and Yama's ptrace_scope: large messages go through the rings, and the log says so.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "dtrun/base/log.h"
#include "dtrun/tensor/ops.h"
#include "support/flat_tensors.h"
#include "support/rank_processes.h"

namespace dtrun::collectives {
namespace {

using test::flat_full;
using test::RankProcesses;

/// From now on the calling process, all its threads, and what it forks.
bool refuse_process_vm_readv() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

std::mutex log_mutex;
std::string log_text;
void keep_line(const base::log::Line& line) {
  const std::scoped_lock lock(log_mutex);
  log_text += std::string(line.message) + "\n";
}
std::string logged() {
  const std::scoped_lock lock(log_mutex);
  return log_text;
}

constexpr std::int64_t kMessageCount = (1 << 20) + 3;  // 4 MiB: no ring holds it

/// Each kind that sends large messages, twice: the first message of a pair always takes the ring.
void call_all(const ProcessGroup& group) {
  const int size = group.size(), me = group.rank();
  const auto piece = [&](int from, int to) { return flat_full(kMessageCount, 10.0 * from + to); };
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<LocalTensor> given, got;
    for (int rank = 0; rank < size; ++rank) {
      given.push_back(piece(me, rank));
      got.push_back(flat_full(kMessageCount, -1));
    }
    group.all_to_all(got, given);
    for (int rank = 0; rank < size; ++rank)
      EXPECT_TRUE(equal(got[static_cast<std::size_t>(rank)], piece(rank, me))) << rank;
    const std::vector<LocalTensor> none;
    group.gather(piece(me, 5), me == 0 ? got : none, 0);
    for (int rank = 0; rank < size && me == 0; ++rank)
      EXPECT_TRUE(equal(got[static_cast<std::size_t>(rank)], piece(rank, 5))) << rank;
    const LocalTensor part = flat_full(kMessageCount, -1);
    group.scatter(part, me == 1 ? given : none, 1);
    EXPECT_TRUE(equal(part, piece(1, me)));
    const Work sent = group.isend(piece(me, 7), (me + 1) % size);
    group.recv(part, (me + size - 1) % size);
    sent.wait();
    EXPECT_TRUE(equal(part, piece((me + size - 1) % size, 7)));
    group.all_reduce(part);
    EXPECT_TRUE(equal(part, flat_full(kMessageCount, 7.0 * size + 5.0 * size * (size - 1))));
  }
}

/// Then no rank is a descendant of the other that it would read.
bool yama_forbids() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope && scope > 0 && ::geteuid() != 0;
}

/// Which ranks are refused: all of them, or the last one alone.
class RefusedCopyTest : public testing::TestWithParam<bool> {};

TEST_P(RefusedCopyTest, ResultsAreRightAndTheLogSaysWhichWayTheyCame) {
  constexpr int kSize = 3;
  RankProcesses ranks(kSize, {}, RankProcesses::Guard::none, [](const ProcessGroup& group) {
    base::log::set_levels("+collectives");
    base::log::set_writer(keep_line);
    const bool is_refused = GetParam() || group.rank() == kSize - 1;
    if (is_refused && !refuse_process_vm_readv()) FAIL() << "no seccomp filter: errno " << errno;
    call_all(group);
    const bool says_copy = logged().find("large messages come by one copy") != std::string::npos;
    const bool says_ring = logged().find(
                               "its memory cannot be read, so messages come through a "
                               "ring") != std::string::npos;
    EXPECT_EQ(says_ring, is_refused || yama_forbids()) << logged();
    EXPECT_EQ(says_copy, !is_refused && !yama_forbids()) << logged();
    group.barrier();
  });
  for (int rank = 0; rank < kSize; ++rank) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    EXPECT_FALSE(ended.thrown.has_value()) << rank << ": " << ended.thrown->text;
    EXPECT_EQ(ended.status, 0) << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(, RefusedCopyTest, testing::Bool(),
                         [](const auto& all) { return all.param ? "OnAllRanks" : "OnOneRank"; });

}  // namespace
}  // namespace dtrun::collectives
