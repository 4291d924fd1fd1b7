// What the nccl backend says and does when something goes wrong: over the simulation of NCCL, which
// hangs where NCCL would.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "collectives/nccl_job.h"

namespace dtrun::test {
namespace {

using collectives::nccl::Result;

constexpr auto kShort = std::chrono::milliseconds(300);
constexpr auto kLong = std::chrono::seconds(60);

/// What a rank meets in its next calls, until one throws.
Error next_failure(Backend& backend, std::uint64_t sequence) {
  Values values = {1};
  for (;; ++sequence) {
    const std::optional<Error> error = error_of([&] {
      test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                       call_of(OpKind::all_reduce, sequence, Deadline::after(kLong)));
      test::barrier(backend, call_of(OpKind::barrier, ++sequence, Deadline::after(kLong)));
    });
    if (error) return *error;
  }
}

/// One abort per communicator, and no other mistake.
void expect_aborted_once(NcclJob& job) {
  for (const std::string& violation : job.simulation.violations()) ADD_FAILURE() << violation;
  for (int rank = 0; rank < job.size; ++rank)
    EXPECT_EQ(job.simulation.count(rank, "abort"), 1) << "rank " << rank;
}

TEST(NcclFailureTest, AnAsynchronousErrorAbortsOnceAndReachesAllRanks) {
  NcclJob job(3);
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
    test::barrier(backend, call_of(OpKind::barrier, 2));
    if (backend.rank() == 1) job.simulation.break_rank(1, Result::remote_error);
    const Error first = next_failure(backend, 3);
    const Error again = next_failure(backend, 100);
    EXPECT_STREQ(first.what(), again.what());
    EXPECT_EQ(first.code(), ErrorCode::kPeerFailed);
    if (backend.rank() != 1) {
      EXPECT_TRUE(contains(first.what(), "rank 1 failed in group 'world'")) << first.what();
    }
    EXPECT_TRUE(contains(first.what(), "simulated error 6")) << first.what();
  });
  for (const auto& error : thrown) EXPECT_FALSE(error) << error->what();
  expect_aborted_once(job);
}

TEST(NcclFailureTest, WhatRunsBehindACallRunsOnceWhateverItThrows) {
  NcclJob job(1, {.runs_at_once = true});
  std::atomic<int> runs = 0;
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    Call call = async_call(OpKind::all_reduce, 1);
    call.finish = [&runs] {
      ++runs;
      throw std::runtime_error("no room for the copy");
    };
    const Work work = test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                                       std::move(call));
    work.wait(Deadline::after(kLong));
  });
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ErrorCode::kSystem);
  EXPECT_TRUE(contains(thrown[0]->what(), "all_reduce #1")) << thrown[0]->what();
  EXPECT_TRUE(contains(thrown[0]->what(), "no room for the copy")) << thrown[0]->what();
  EXPECT_EQ(runs, 1);
  expect_aborted_once(job);
}

TEST(NcclFailureTest, ACommunicatorWithoutAllItsRanksNamesTheMissing) {
  NcclJob job(3);
  const auto thrown = job.run([&](Backend& backend) {
    if (backend.rank() == 2) return;
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1, Deadline::after(kShort)));
  });
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(thrown[static_cast<std::size_t>(rank)]);
    const Error& error = *thrown[static_cast<std::size_t>(rank)];
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_TRUE(contains(error.what(), "in all_reduce #1")) << error.what();
    EXPECT_TRUE(contains(error.what(), "for rank 2")) << error.what();
  }
  EXPECT_EQ(job.simulation.count(0, "init_rank"), 0);
}

TEST(NcclFailureTest, ACommunicatorThatIsNeverMadeIsAborted) {
  NcclJob job(2, {.init_ends = false});
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1, Deadline::after(kShort)));
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kTimeout);
    EXPECT_TRUE(contains(error->what(), "NCCL has not made its communicator")) << error->what();
  }
  expect_aborted_once(job);
}

TEST(NcclFailureTest, ADeadlineThatPassesWithoutAWaiterEndsTheGroup) {
  NcclJob job(2);
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
    test::barrier(backend, call_of(OpKind::barrier, 2));
    if (backend.rank() == 1) {
      // The other's word comes to a rank only while it works: it has a call that cannot end.
      const Error error = *error_of([&] {
        test::receive(backend, buffer_of(values), 0, 0,
                      call_of(OpKind::receive, 1, Deadline::after(kLong)));
      });
      EXPECT_TRUE(contains(error.what(), "rank 0 failed in group 'world'")) << error.what();
      return;
    }
    Call call = call_of(OpKind::all_reduce, 3, Deadline::after(kShort));
    call.async = true;
    const Work work = test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                                       std::move(call));
    while (!work.is_completed()) std::this_thread::yield();
    ASSERT_TRUE(work.exception());
    const Error error = *error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_TRUE(contains(error.what(), "in all_reduce #3")) << error.what();
  });
  for (const auto& error : thrown) EXPECT_FALSE(error) << error->what();
  for (const std::string& violation : job.simulation.violations()) ADD_FAILURE() << violation;
}

TEST(NcclFailureTest, AWaitWithADeadlineLeavesTheOperationAlone) {
  NcclJob job(2);
  job.simulation.freeze(true);
  std::atomic<int> looked = 0;
  job.run_well([&](Backend& backend) {
    Values values = {1};
    const Work work = test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                                       async_call(OpKind::all_reduce, 1));
    const std::optional<Error> error = error_of([&] { work.wait(Deadline::after(kShort)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kTimeout);
    EXPECT_FALSE(work.is_completed());
    EXPECT_FALSE(work.exception());
    if (++looked == 2) job.simulation.freeze(false);
    work.wait(Deadline::after(kLong));
    EXPECT_EQ(values, Values{2});
  });
}

TEST(NcclFailureTest, RanksOnOneGpuAreRefusedWithTheRemedy) {
  NcclJob job(2, {.one_gpu = true});
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(contains(error->what(), "ranks 0 and 1 both use cuda:0 of n0")) << error->what();
    EXPECT_TRUE(contains(error->remedy(), "staged")) << error->remedy();
  }
}

TEST(NcclFailureTest, RanksThatCallDifferentThingsAreTold) {
  for (const bool compare : {false, true}) {
    NcclJob job(2);
    job.compare_calls = compare;
    const auto thrown = job.run([&](Backend& backend) {
      Values values = {1, 2};
      Call call = call_of(backend.rank() == 0 ? OpKind::all_reduce : OpKind::broadcast, 1);
      if (backend.rank() == 0)
        test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                         std::move(call));
      else
        test::broadcast(backend, buffer_of(values), 0, std::move(call));
      test::barrier(backend, call_of(OpKind::barrier, 2));
    });
    for (const auto& error : thrown) {
      ASSERT_TRUE(error);
      EXPECT_TRUE(contains(error->what(), "disagree")) << error->what();
      EXPECT_TRUE(contains(error->what(), "all_reduce #1")) << error->what();
      EXPECT_TRUE(contains(error->what(), "broadcast #1")) << error->what();
    }
  }
}

TEST(NcclFailureTest, APeersRejectionReachesThoseWhoWait) {
  NcclJob job(2);
  const auto thrown = job.run([&](Backend& backend) {
    if (backend.rank() == 1) {
      backend.reject(call_of(OpKind::all_reduce, 1).fingerprint,
                     Error(ErrorCode::kInvalidArgument, "the tensor is undefined"));
      return;
    }
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
  });
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ErrorCode::kPeerFailed);
  EXPECT_TRUE(contains(thrown[0]->what(), "the tensor is undefined")) << thrown[0]->what();
}

TEST(NcclFailureTest, TheJobsEndEndsAWait) {
  NcclJob job(2);
  job.job_page = std::make_shared<rendezvous::JobPage>(rendezvous::JobPage::create(2));
  const auto thrown = job.run([&](Backend& backend) {
    if (backend.rank() == 1) {
      rendezvous::Cause cause;
      cause.global_rank = 1;
      cause.signal = 9;
      job.job_page->abort(cause);
      return;
    }
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
  });
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ErrorCode::kPeerFailed);
  EXPECT_TRUE(contains(thrown[0]->what(), "rank 1")) << thrown[0]->what();
}

TEST(NcclFailureTest, WhatNcclDoesNotHaveIsRefusedWithTheRemedy) {
  NcclJob job(2);
  job.run_well([&](Backend& backend) {
    Values values = {1};
    const auto refusal = [&](const std::function<void()>& action) {
      const std::optional<Error> error = error_of(action);
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
      EXPECT_TRUE(contains(error->remedy(), "staged")) << error->what();
    };
    refusal([&] { test::receive(backend, buffer_of(values), -1, 0, call_of(OpKind::receive, 1)); });
    refusal([&] { test::send(backend, buffer_of(values), 1, 7, call_of(OpKind::send, 1)); });
    refusal([&] {
      test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::bxor,
                       call_of(OpKind::all_reduce, 1));
    });
    Buffer elsewhere = buffer_of(values);
    elsewhere.device_index = 1;
    const std::optional<Error> two_devices = error_of([&] {
      test::all_gather(backend, buffer_of(values), {elsewhere, elsewhere},
                       call_of(OpKind::all_gather, 1));
    });
    ASSERT_TRUE(two_devices);
    EXPECT_EQ(two_devices->code(), ErrorCode::kInvalidArgument);
  });
}

TEST(NcclFailureTest, AQueueThatCannotBeMadeFailsTheGroup) {
  NcclJob job(2, {.has_streams = false});
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
  });
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(contains(error->what(), "no simulated stream")) << error->what();
  }
}

TEST(NcclFailureTest, AGroupThatIsLeftTakesNoCalls) {
  NcclJob job(1);
  job.run_well([&](Backend& backend) {
    backend.shutdown();
    backend.shutdown();
    Values values = {1};
    const std::optional<Error> error = error_of([&] {
      test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                       call_of(OpKind::all_reduce, 1));
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kAborted);
  });
}

}  // namespace
}  // namespace dtrun::test
