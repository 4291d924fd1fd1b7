#include "dtrun/rendezvous/job_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "dtrun/base/futex.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using base::UniqueFd;
using testing_support::contains;
using testing_support::error_of;

Cause cause_of_rank(int rank) {
  Cause cause;
  cause.global_rank = rank;
  cause.local_rank = rank;
  cause.pid = 1000 + rank;
  return cause;
}

UniqueFd file_with(const void* data, std::size_t size) {
  UniqueFd fd(::memfd_create("page", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), data, size), static_cast<ssize_t>(size));
  return fd;
}

TEST(JobPageTest, TheFirstBytesOfThePageAreMagicVersionAndSize) {
  const JobPage page = JobPage::create(2);
  char bytes[24];
  ASSERT_EQ(::pread(page.fd(), bytes, sizeof bytes, 0), 24);
  EXPECT_EQ(std::string(bytes, 8), "trunPage");
  std::uint32_t version = 0;
  std::uint64_t size = 0;
  ::memcpy(&version, bytes + 8, 4);
  ::memcpy(&size, bytes + 16, 8);
  EXPECT_EQ(version, 1u);
  EXPECT_EQ(size, sizeof(JobPageHeader) + 2 * sizeof(RankSlot) +
                      2 * kHistoryLength * sizeof(HistoryEntry));
}

TEST(JobPageTest, WhatAnotherProcessWritesIsSeen) {
  const JobPage page = JobPage::create(3);
  const pid_t child = ::fork();
  if (child == 0) {
    const JobPage mine = JobPage::open(page.fd());
    mine.slot(2).global_rank.store(6);
    mine.slot(2).state.store(static_cast<std::uint32_t>(RankState::kRunning));
    ::_exit(mine.slot_count());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(page.slot(2).global_rank.load(), 6);
  EXPECT_EQ(page.slot(1).global_rank.load(), -1);
}

TEST(JobPageTest, AbortWakesASleeperInAnotherProcess) {
  JobPage page = JobPage::create(1);
  const pid_t child = ::fork();
  if (child == 0) {
    const JobPage mine = JobPage::open(page.fd());
    mine.header().ranks_in_init.store(1);
    base::futex_wake_all(mine.header().ranks_in_init);
    while (!mine.aborted()) base::futex_wait(mine.header().abort, 0, Deadline::never());
    ::_exit(contains(mine.describe_cause(), "SIGKILL") ? 0 : 1);
  }
  while (page.header().ranks_in_init.load() == 0)
    base::futex_wait(page.header().ranks_in_init, 0, Deadline::never());
  Cause cause = cause_of_rank(0);
  cause.signal = 9;
  EXPECT_TRUE(page.abort(cause));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(JobPageTest, ExactlyOneOfManyAbortsAtOnceBecomesTheCause) {
  for (int round = 0; round < 50; ++round) {
    JobPage page = JobPage::create(8);
    std::atomic<int> firsts{0};
    std::atomic<int> winner{-1};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 8; ++rank)
      threads.emplace_back([&, rank] {
        JobPage mine = JobPage::open(page.fd());
        Cause cause = cause_of_rank(rank);
        cause.exit_code = 10 + rank;
        if (mine.abort(cause)) {
          ++firsts;
          winner = rank;
        }
        EXPECT_TRUE(mine.aborted());
        EXPECT_NE(mine.describe_cause(), "");
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(firsts.load(), 1);
    EXPECT_EQ(page.header().cause.global_rank, winner.load());
    EXPECT_EQ(page.header().cause.exit_code, 10 + winner.load());
  }
}

TEST(JobPageTest, ACauseTellsRankPidSignalAndTheCollectiveItDiedIn) {
  JobPage page = JobPage::create(4);
  EXPECT_EQ(page.describe_cause(), "");
  RankSlot& slot = page.slot(2);
  Operation& operation = slot.ring[0];
  ::strcpy(operation.name, "all_reduce");
  ::strcpy(operation.group, "world");
  operation.sequence = 41;
  slot.operations.store(kOperationRing + 1);
  Cause cause = cause_of_rank(2);
  cause.pid = 812;
  cause.signal = 9;
  cause.state_at_death = static_cast<int>(RankState::kInCollective);
  page.abort(cause);
  EXPECT_EQ(page.describe_cause(),
            "rank 2 (pid 812) was killed by SIGKILL in all_reduce #41 of group 'world'");
}

TEST(JobPageTest, EveryKindOfCauseHasItsWords) {
  const auto words = [](Cause cause, RankState state, const char* text) {
    JobPage page = JobPage::create(4);
    cause.state_at_death = static_cast<int>(state);
    ::strcpy(cause.text, text);
    page.abort(cause);
    return page.describe_cause();
  };
  Cause exited = cause_of_rank(1);
  exited.exit_code = 3;
  EXPECT_EQ(words(exited, RankState::kInit, ""),
            "rank 1 (pid 1001) exited with code 3 in its init");
  EXPECT_EQ(words(exited, RankState::kSpawned, ""),
            "rank 1 (pid 1001) exited with code 3 before its init");
  Cause elsewhere = cause_of_rank(1);
  elsewhere.pid = 0;
  EXPECT_EQ(words(elsewhere, RankState::kNone, "it has not come"),
            "rank 1 failed: it has not come");
  EXPECT_EQ(words(exited, RankState::kRunning, "out of memory"),
            "rank 1 (pid 1001) exited with code 3: out of memory");
  EXPECT_EQ(words(exited, RankState::kInCollective, ""),
            "rank 1 (pid 1001) exited with code 3 in a collective");
  EXPECT_EQ(words(cause_of_rank(1), RankState::kRunning, "no data from rank 3"),
            "rank 1 (pid 1001) failed: no data from rank 3");
  EXPECT_EQ(words(Cause{}, RankState::kNone, "interrupted"), "interrupted");
  EXPECT_EQ(words(Cause{}, RankState::kNone, ""), "the launcher ended the job");
}

TEST(JobPageTest, ACauseWhoseWriterDiedHalfwayIsNotWaitedForLong) {
  JobPage page = JobPage::create(1);
  page.header().cause_state.store(1);
  EXPECT_FALSE(page.abort(cause_of_rank(0)));
  EXPECT_TRUE(page.aborted());
  EXPECT_EQ(page.describe_cause(), "");
}

TEST(JobPageTest, WhatIsNoJobPageIsRefused) {
  const auto refused = [](int fd, const std::string& why) {
    const auto error = error_of([&] { JobPage::open(fd); });
    ASSERT_TRUE(error) << why;
    EXPECT_EQ(error->code(), ErrorCode::kProtocol);
    EXPECT_TRUE(contains(error->why(), why)) << error->what();
  };
  refused(1 << 20, "not open");
  const base::Pipe pipe = base::make_pipe();
  refused(pipe.read_end.get(), "no file");
  refused(file_with("short", 5).get(), "too short");
  const std::vector<char> zeros(8192);
  refused(file_with(zeros.data(), zeros.size()).get(), "first bytes");

  const JobPage page = JobPage::create(1);
  std::vector<char> copy(page.header().size);
  ASSERT_EQ(::pread(page.fd(), copy.data(), copy.size(), 0), static_cast<ssize_t>(copy.size()));
  refused(file_with(copy.data(), copy.size() - 1).get(), "do not hold");
  copy[12] = 2;  // slot_count
  refused(file_with(copy.data(), copy.size()).get(), "do not hold");
  copy[8] = 2;  // version
  refused(file_with(copy.data(), copy.size()).get(), "version 2");
}

TEST(JobPageTest, APageThatHasTheNumberButNotTheIdIsAnothers) {
  const JobPage page = JobPage::create(1), another = JobPage::create(1);
  EXPECT_NE(page.id(), another.id());
  EXPECT_EQ(JobPage::open(page.fd(), page.id()).id(), page.id());
  const auto error = error_of([&] { JobPage::open(another.fd(), page.id()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kProtocol);
  EXPECT_TRUE(contains(error->why(), "the number was given out anew")) << error->what();
}

TEST(JobPageTest, NobodyWhoHasThePageCanChangeItsSize) {
  const JobPage page = JobPage::create(1);
  const JobPage mine = JobPage::open(page.fd());
  for (const off_t size : {off_t{0}, off_t{1} << 20}) {
    EXPECT_EQ(::ftruncate(mine.fd(), size), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(::fcntl(mine.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
  EXPECT_EQ(page.slot(0).global_rank.load(), -1);
}

TEST(JobPageTest, WhoeverScribblesAllOverItLeadsNobodyAstray) {
  JobPage page = JobPage::create(2);
  const JobPage rank = JobPage::open(page.fd());
  for (const int byte : {0xff, 0x41, 0x1b, 0x02}) {
    ::memset(static_cast<void*>(&rank.header()), byte,
             sizeof(JobPageHeader) + 2 * sizeof(RankSlot));
    EXPECT_EQ(page.slot_count(), 2);
    EXPECT_EQ(&page.slot(1) - &page.slot(0), 1);
    EXPECT_FALSE(page.slot_of(1));
    const std::string operation = describe_newest_operation(page.slot(1));
    EXPECT_LT(operation.size(), 96u);
    EXPECT_EQ(operation.find('\x1b'), std::string::npos);
    page.abort(cause_of_rank(0));
    EXPECT_TRUE(page.aborted());
    page.header().cause_state.store(2);
    EXPECT_LT(page.describe_cause().size(), 512u);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
