// Calls of ranks that share a core, which meet by posts and go on by messages: that a rank's end,
// an abort, a timeout and another call reach all of them while the messages are under way.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "dtrun/base/log.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_processes.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::ErrorCode;
using std::chrono::seconds;
using test::RankProcesses;
using testing_support::contains;

constexpr int kRanks = 6, kLast = kRanks - 1;
constexpr std::int64_t kMany = 1 << 20;

/// Of a rank: that the posts have said that not all lies in shared tensors. The last rank then
/// raises a signal, before it sends or takes anything.
std::atomic<bool> has_gone_on{false};
std::atomic<int> signal_here{0};

class CrowdTest : public testing::Test {
 protected:
  // Before the groups are made, which ask once what is logged.
  CrowdTest() {
    base::log::set_levels("+collectives");
    base::log::set_writer([](const base::log::Line& line) {
      if (line.message.find(" goes on by messages in chunks") == std::string::npos) return;
      has_gone_on = true;
      if (signal_here != 0) ::raise(signal_here);
    });
  }
  ~CrowdTest() override {
    base::log::set_writer(nullptr);
    base::log::set_levels("");
  }
};

void raise_in_last(const ProcessGroup& group, int signal) {
  if (group.rank() == kLast) signal_here = signal;
}

/// A sum whose messages are under way, without those of the last rank.
Work sum_under_way(const ProcessGroup& group, const LocalTensor& tensor,
                   std::optional<base::Deadline::Duration> timeout = std::nullopt) {
  const Work work = group.all_reduce(tensor, ReduceOp::sum, {.async = true, .timeout = timeout});
  while (!has_gone_on && !work.is_completed()) {
  }
  return work;
}

/// What all but the last rank have thrown.
void expect_all_throw(RankProcesses& ranks, ErrorCode code, const std::string& text) {
  for (int rank = 0; rank < kLast; ++rank) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    ASSERT_TRUE(ended.thrown.has_value()) << rank << ", status " << ended.status;
    EXPECT_EQ(ended.thrown->code, code) << ended.thrown->text;
    EXPECT_TRUE(contains(ended.thrown->text, text)) << ended.thrown->text;
  }
}

TEST_F(CrowdTest, ARankThatDiesAfterTheOthersHaveMetItIsNamed) {
  RankProcesses ranks(kRanks, {.cpus = 1}, RankProcesses::Guard::none,
                      [](const ProcessGroup& group) {
                        raise_in_last(group, SIGKILL);
                        const LocalTensor tensor = tensors::ones({kMany});
                        sum_under_way(group, tensor).wait();
                      });
  EXPECT_EQ(ranks.wait(kLast).status, SIGKILL);
  expect_all_throw(ranks, ErrorCode::kPeerFailed, "rank 5 (pid ");
}

TEST_F(CrowdTest, ARankThatStopsAfterTheOthersHaveMetItIsNamedByTheTimeout) {
  RankProcesses ranks(kRanks, {.cpus = 1}, RankProcesses::Guard::none,
                      [](const ProcessGroup& group) {
                        raise_in_last(group, SIGSTOP);
                        const LocalTensor tensor = tensors::ones({kMany});
                        // The first one's ends first, and is told to all.
                        const auto timeout = seconds(group.rank() == 0 ? 4 : 60);
                        sum_under_way(group, tensor, timeout).wait();
                      });
  const RankProcesses::Ended first = ranks.wait(0);
  ASSERT_TRUE(first.thrown.has_value());
  EXPECT_EQ(first.thrown->code, ErrorCode::kTimeout) << first.thrown->text;
  EXPECT_TRUE(contains(first.thrown->text, "rank 5")) << first.thrown->text;
  for (int rank = 1; rank < kLast; ++rank) EXPECT_TRUE(ranks.wait(rank).thrown.has_value()) << rank;
}

TEST_F(CrowdTest, AnAbortReachesThoseThatWaitAndTheOneThatStopped) {
  RankProcesses ranks(kRanks, {.cpus = 1}, RankProcesses::Guard::none,
                      [](const ProcessGroup& group) {
                        raise_in_last(group, SIGSTOP);
                        const LocalTensor tensor = tensors::ones({kMany});
                        const Work work = sum_under_way(group, tensor);
                        if (group.rank() == 1) group.abort("the loss is nan");
                        work.wait();
                      });
  expect_all_throw(ranks, ErrorCode::kAborted, "the loss is nan");
  ranks.continue_stopped(kLast);
  const RankProcesses::Ended last = ranks.wait(kLast);
  ASSERT_TRUE(last.thrown.has_value()) << "status " << last.status;
  EXPECT_TRUE(contains(last.thrown->text, "the loss is nan")) << last.thrown->text;
}

TEST_F(CrowdTest, AnotherShortCallIsFoundAndEndsTheLongOne) {
  RankProcesses ranks(
      kRanks, {.cpus = 1}, RankProcesses::Guard::none, [](const ProcessGroup& group) {
        raise_in_last(group, SIGSTOP);
        const LocalTensor tensor = tensors::ones({kMany}), one = tensors::ones({1});
        const Work work = sum_under_way(group, tensor);
        const CallOptions in_flight{.async = true};
        const Work other = group.rank() == 1 ? group.barrier(in_flight)
                                             : group.all_reduce(one, ReduceOp::sum, in_flight);
        work.wait();
      });
  expect_all_throw(ranks, ErrorCode::kDisagreement, "barrier");
  ranks.continue_stopped(kLast);
  EXPECT_TRUE(ranks.wait(kLast).thrown.has_value());
}

}  // namespace
}  // namespace dtrun::collectives
