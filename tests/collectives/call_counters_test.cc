// What a group says of its calls: how many, how many bytes, how long. Over every backend.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/nccl_job.h"
#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/job_page.h"
#include "support/flat_tensors.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using test::flat_ones;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::contains;
using testing_support::error_of;

/// What any backend must say of these calls.
void count_calls(const ProcessGroup& group) {
  const int rank = group.rank();
  EXPECT_TRUE(group.call_counters().kinds.empty());
  const tensors::LocalTensor numbers = flat_ones(10);
  for (int i = 0; i < 3; ++i) group.all_reduce(numbers);
  group.all_reduce_into_tensor(flat_ones(10), numbers);
  group.all_reduce(flat_ones(100000), ReduceOp::sum, {.async = true}).wait();
  group.broadcast(numbers, 0);
  if (rank == 0) group.send(numbers, 1);
  if (rank == 1) group.recv(numbers, 0);
  group.barrier();
  const CallCounters counters = group.call_counters();
  EXPECT_EQ(counters.group, "world");
  EXPECT_EQ(counters.rank, rank);
  EXPECT_EQ(counters.size, 2);
  EXPECT_EQ(counters.kinds.size(), 4U) << counters.to_string();
  const CallCount reductions = counters.of(OpKind::all_reduce);
  EXPECT_EQ(reductions.calls, 5U);
  EXPECT_EQ(reductions.failed, 0U);
  // In place a tensor counts once; apart, both do.
  EXPECT_EQ(reductions.bytes, 3U * 40 + 80 + 400000);
  const CallCount messages = counters.of(rank == 0 ? OpKind::send : OpKind::receive);
  EXPECT_EQ(messages.calls, 1U);
  EXPECT_EQ(messages.bytes, 40U);
  EXPECT_EQ(counters.of(OpKind::barrier).calls, 1U);
  EXPECT_EQ(counters.of(OpKind::gather), (CallCount{.kind = OpKind::gather}));
}

/// Every call is timed: none goes the short way of the cpu backend.
void time_calls(const ProcessGroup& group) {
  const CallCounters counters = group.call_counters();
  for (const CallCount& count : counters.kinds) {
    EXPECT_EQ(count.timed, count.calls) << counters.to_string();
    EXPECT_GT(count.longest.count(), 0);
    EXPECT_GE(count.total, count.longest);
  }
}

/// What --metrics-port serves.
TEST(CallCountersTest, TheJobPageHasTheSumOfAGroupsCallsAndBytes) {
  const auto page = test::page_of_ranks(2);
  run_ranks(2, {.job_page = page}, [&](const ProcessGroup& group) {
    const rendezvous::RankSlot& slot = page->slot(group.rank());
    const std::uint64_t calls = slot.operations, bytes = slot.bytes;
    count_calls(group);
    std::uint64_t counted_calls = 0, counted_bytes = 0;
    for (const CallCount& count : group.call_counters().kinds) {
      counted_calls += count.calls;
      counted_bytes += count.bytes;
    }
    EXPECT_EQ(slot.operations - calls, counted_calls);
    EXPECT_EQ(slot.bytes - bytes, counted_bytes);
  });
}

TEST(CallCountersTest, EveryBackendCountsCallsAndBytes) {
  for (const char* backend : {"cpu", "gloo"}) {
    if (!is_backend_available(backend)) continue;
    test::RankOptions options;
    options.backend = backend;
    run_ranks(2, options, count_calls);
  }
  test::RankOptions tcp;
  tcp.transport = Transport::tcp;
  run_ranks(2, tcp, [](const ProcessGroup& group) {
    count_calls(group);
    time_calls(group);
  });
}

// Its terms are no tensors of the caller's.
TEST(CallCountersTest, APremulSumCountsTheTensorsOfTheCaller) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    const auto page = test::page_of_ranks(2);
    run_ranks(2, {.transport = transport, .job_page = page}, [&](const ProcessGroup& group) {
      const std::uint64_t begin = page->slot(group.rank()).bytes;
      std::uint64_t expected = 0;
      const auto expect_counted = [&](std::uint64_t bytes) {
        expected += bytes;
        std::uint64_t counted = 0;
        for (const CallCount& count : group.call_counters().kinds) counted += count.bytes;
        EXPECT_EQ(counted, expected);
        EXPECT_EQ(page->slot(group.rank()).bytes - begin, expected);
      };
      for (const bool async : {false, true}) {
        const CallOptions options{.async = async, .factor = 2};
        const tensors::LocalTensor numbers = flat_ones(10), apart = flat_ones(10);
        group.all_reduce(numbers, ReduceOp::premul_sum, options).wait();
        expect_counted(40);
        group.all_reduce_into_tensor(numbers, numbers, ReduceOp::premul_sum, options).wait();
        expect_counted(40);
        EXPECT_EQ(numbers.to_vector(), std::vector<double>(10, 16));
        group.all_reduce_into_tensor(numbers, apart, ReduceOp::premul_sum, options).wait();
        expect_counted(80);
        group.reduce(apart, 0, ReduceOp::premul_sum, options).wait();
        expect_counted(40);
        EXPECT_EQ(apart.to_vector(), std::vector<double>(10, group.rank() == 0 ? 4 : 1));
        group.reduce_scatter_tensor(flat_ones(5), apart, ReduceOp::premul_sum, options).wait();
        expect_counted(60);
      }
    });
  }
}

TEST(CallCountersTest, NcclCountsAndTimesThem) {
  test::NcclJob job(2);
  job.tensors_of = tensors::DeviceType::cpu;
  job.host_wait = test::HostWait::yes;
  const auto thrown = job.run_owners([&](std::unique_ptr<Backend> backend) {
    GroupOptions options = test::group_options(job.store, backend->rank(), 2);
    const ProcessGroup group = ProcessGroup::over(std::move(options), std::move(backend));
    count_calls(group);
    time_calls(group);
  });
  job.expect_well(thrown);
}

TEST(CallCountersTest, ShortCallsAreTimedOnDemand) {
  run_ranks(2, [](const ProcessGroup& group) {
    group.set_call_timing(CallTiming::all_calls);
    const tensors::LocalTensor numbers = flat_ones(1);
    for (int i = 0; i < 100; ++i) group.all_reduce(numbers);
    const CallCount all = group.call_counters().of(OpKind::all_reduce);
    EXPECT_EQ(all.calls, 100U);
    EXPECT_EQ(all.timed, 100U);
    EXPECT_GE(all.total, all.longest);
    const ProcessGroup pair = group.split({{0, 1}}, "pair");
    pair.barrier();
    EXPECT_EQ(pair.call_counters().of(OpKind::barrier).timed, 1U);
    EXPECT_EQ(group.call_counters().of(OpKind::split).calls, 1U);
    EXPECT_EQ(group.call_counters().of(OpKind::split).failed, 0U);
    EXPECT_EQ(group.call_counters().of(OpKind::barrier).calls, 0U);
  });
}

TEST(CallCountersTest, ADifferenceHasTheTimesAndFailuresOfCallsThatBeganBefore) {
  CallCounters before, after;
  before.kinds = {{.kind = OpKind::all_reduce, .calls = 2, .timed = 1},
                  {.kind = OpKind::broadcast, .calls = 1},
                  {.kind = OpKind::barrier, .calls = 1, .timed = 1}};
  after.kinds = {{.kind = OpKind::all_reduce, .calls = 2, .timed = 2, .total = milliseconds(3)},
                 {.kind = OpKind::broadcast, .calls = 1, .failed = 1},
                 {.kind = OpKind::barrier, .calls = 1, .timed = 1}};
  const CallCounters step = after.since(before);
  EXPECT_EQ(step.kinds.size(), 2U) << step.to_string();
  EXPECT_EQ(step.of(OpKind::all_reduce).total, milliseconds(3));
  EXPECT_EQ(step.of(OpKind::broadcast).failed, 1U);
}

TEST(CallCountersTest, AShortCallThatWaitsForAPeerIsTimed) {
  run_ranks(2, [](const ProcessGroup& group) {
    // On a busy machine rank 0 may itself be late, but not each time.
    for (int i = 0; i < 20; ++i) {
      const auto late = std::chrono::steady_clock::now() + milliseconds(5);
      // Rank 1 is at work.
      while (group.rank() == 1 && std::chrono::steady_clock::now() < late) {
      }
      group.all_reduce(flat_ones(1));
    }
    if (group.rank() == 1) return;
    const CallCount count = group.call_counters().of(OpKind::all_reduce);
    EXPECT_EQ(count.calls, 20U);
    EXPECT_GE(count.timed, 1U);
    EXPECT_GT(count.longest, milliseconds(1));
  });
}

TEST(CallCountersTest, FailedCallsAreCountedAndNotTimed) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    if (group.rank() == 1) return;
    const auto error =
        error_of([&] { group.recv(flat_ones(1), 1, 0, {.timeout = milliseconds(50)}); });
    ASSERT_TRUE(error.has_value());
    const auto again = error_of([&] { group.all_reduce(flat_ones(1)); });
    ASSERT_TRUE(again.has_value());
    const CallCounters counters = group.call_counters();
    for (const OpKind kind : {OpKind::receive, OpKind::all_reduce}) {
      EXPECT_EQ(counters.of(kind).calls, 1U) << counters.to_string();
      EXPECT_EQ(counters.of(kind).failed, 1U) << counters.to_string();
      EXPECT_EQ(counters.of(kind).timed, 0U) << counters.to_string();
    }
    EXPECT_TRUE(contains(counters.to_string(), "recv (1 failed)")) << counters.to_string();
  });
  for (const auto& mine : thrown) EXPECT_FALSE(mine.has_value()) << mine->text;
}

TEST(CallCountersTest, TheDifferenceOfTwoMomentsIsThatOfAStep) {
  CallCounters before{
      "world", 0, 2, {{OpKind::all_reduce, 2, 0, 80, 1, nanoseconds(50), nanoseconds(50)}}};
  CallCounters after{"world",
                     0,
                     2,
                     {{OpKind::all_reduce, 5, 1, 200, 3, nanoseconds(2050), nanoseconds(1500)},
                      {OpKind::barrier, 1, 0, 0, 0, {}, {}}}};
  const CallCounters step = after.since(before);
  EXPECT_EQ(step.of(OpKind::all_reduce),
            (CallCount{OpKind::all_reduce, 3, 1, 120, 2, nanoseconds(2000), nanoseconds(1500)}));
  EXPECT_EQ(step.to_string(),
            "group 'world', rank 0 of 2\n"
            "kind                   calls  bytes  timed  total  mean  longest\n"
            "all_reduce (1 failed)      3    120      2   2 us  1 us   1.5 us\n"
            "barrier                    1      0      0      -     -        -\n");
  EXPECT_TRUE(before.since(before).kinds.empty());
}

}  // namespace
}  // namespace dtrun::collectives
