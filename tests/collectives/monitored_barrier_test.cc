// The barrier that says who did not come.
#include <gtest/gtest.h>

#include <string>

#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::run_failing_ranks;
using test::Thrown;
using testing_support::contains;
using testing_support::error_of;

class MonitoredBarrierTest : public testing::TestWithParam<std::string> {
 protected:
  static test::RankOptions options() {
    if (GetParam() == "Tcp") return {.transport = Transport::tcp};
    if (GetParam() == "Mixed") return {.machines = {1}};
    return {};
  }
};

TEST_P(MonitoredBarrierTest, AllGoOnTogether) {
  for (const int size : {1, 2, 5})
    test::run_ranks(size, options(), [](const ProcessGroup& group) {
      for (int i = 0; i < 3; ++i) {
        group.monitored_barrier({.timeout = seconds(30)});
        group.barrier();
      }
      // Twice as long would be before now.
      group.monitored_barrier({.timeout = base::Deadline::Duration::max()});
      // A user's message with any tag is not taken for the barrier's.
      if (group.size() == 1) return;
      const tensors::LocalTensor tensor = tensors::zeros({2});
      const Work receive = group.rank() == 0 ? group.irecv(tensor, 1) : Work();
      group.monitored_barrier();
      if (group.rank() == 1) group.send(tensors::ones({2}), 0);
      receive.wait();
    });
}

/// Ranks from 2 on do not come.
std::vector<std::optional<Thrown>> missing_ranks(const test::RankOptions& options,
                                                 MonitoredBarrierOptions how) {
  return run_failing_ranks(4, options, [how](const ProcessGroup& group) {
    if (group.rank() < 2) return group.monitored_barrier(how);
    // They learn of it wherever they are.
    group.recv(tensors::zeros({1}), 1);
  });
}

TEST_P(MonitoredBarrierTest, RankZeroNamesTheFirstMissingRankAndTellsTheOthers) {
  const auto thrown = missing_ranks(options(), {.timeout = milliseconds(500)});
  for (const std::optional<Thrown>& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kTimeout) << mine->text;
    EXPECT_TRUE(mine->text.starts_with("rank 0 waited ")) << mine->text;
    EXPECT_TRUE(contains(mine->text, "in monitored_barrier #1 at ")) << mine->text;
    EXPECT_TRUE(contains(mine->text, "of group 'world' for rank 2\n")) << mine->text;
  }
  EXPECT_TRUE(contains(thrown[0]->text, "with wait_all_ranks all are named")) << thrown[0]->text;
}

TEST_P(MonitoredBarrierTest, WithWaitAllRanksItNamesAll) {
  const auto thrown =
      missing_ranks(options(), {.timeout = milliseconds(500), .wait_all_ranks = true});
  ASSERT_TRUE(thrown[0].has_value());
  EXPECT_EQ(thrown[0]->code, ErrorCode::kTimeout);
  EXPECT_TRUE(contains(thrown[0]->text, "for ranks 2, 3")) << thrown[0]->text;
  ASSERT_TRUE(thrown[1].has_value());
  EXPECT_EQ(thrown[1]->code, ErrorCode::kTimeout) << thrown[1]->text;
}

TEST_P(MonitoredBarrierTest, WithoutRankZeroTheOthersTimeOutToo) {
  const auto thrown = run_failing_ranks(2, options(), [](const ProcessGroup& group) {
    if (group.rank() == 1) return group.monitored_barrier({.timeout = milliseconds(100)});
    group.recv(tensors::zeros({1}), 1);
  });
  for (const std::optional<Thrown>& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kTimeout) << mine->text;
    EXPECT_TRUE(contains(mine->text, "in monitored_barrier #1")) << mine->text;
    EXPECT_TRUE(contains(mine->text, "for rank 0")) << mine->text;
  }
}

TEST_P(MonitoredBarrierTest, ARankThatHasLeftIsNamedAtOnce) {
  const auto thrown = run_failing_ranks(3, options(), [](const ProcessGroup& group) {
    if (group.rank() != 2) group.monitored_barrier();
  });
  for (const std::size_t rank : {0, 1}) {
    ASSERT_TRUE(thrown[rank].has_value());
    EXPECT_EQ(thrown[rank]->code, ErrorCode::kPeerFailed) << thrown[rank]->text;
    EXPECT_TRUE(thrown[rank]->text.starts_with("rank 2 (pid")) << thrown[rank]->text;
  }
}

TEST_P(MonitoredBarrierTest, PeersThatHavePassedItAreFound) {
  // Nobody waits for rank 1 in the broadcast, and no message of the next call meets the barrier's.
  const auto thrown = run_failing_ranks(3, options(), [](const ProcessGroup& group) {
    const tensors::LocalTensor tensor = tensors::zeros({2});
    if (group.rank() == 1) return group.monitored_barrier({.timeout = seconds(50)});
    group.broadcast(tensor, 0);
    group.all_reduce(tensor);
  });
  for (const std::optional<Thrown>& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kDisagreement) << mine->text;
    EXPECT_TRUE(contains(mine->text, "rank 1 called monitored_barrier #1")) << mine->text;
    EXPECT_TRUE(contains(mine->text, "called broadcast #1")) << mine->text;
  }
}

TEST_P(MonitoredBarrierTest, ATimeoutOfNothingIsRefused) {
  test::run_ranks(2, options(), [](const ProcessGroup& group) {
    const auto error = error_of([&] { group.monitored_barrier({.timeout = milliseconds(0)}); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(contains(error->what(), "the timeout of monitored_barrier is 0"));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, MonitoredBarrierTest,
                         testing::Values("Automatic", "Tcp", "Mixed"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace dtrun::collectives
