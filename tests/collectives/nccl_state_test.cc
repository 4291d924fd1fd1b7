// The nccl backend over a simulation of NCCL and CUDA: ranks as threads, device memory in host
// memory. What it composes of NCCL's calls is compared with plain references; what may go wrong is
// made to go wrong.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "collectives/nccl_job.h"
#include "support/thrown_error.h"

namespace dtrun::test {
namespace {

/// Rank r's part for rank p: count elements that tell where they come from.
Values part(int from, int to, std::size_t count) {
  return Values(count, 100 * from + to + 1);
}

TEST(NcclStateTest, EveryCollectiveMovesTheRightElements) {
  for (const int size : {1, 2, 3, 5}) {
    NcclJob job(size);
    job.host_wait = HostWait::yes;
    job.run_well([&](Backend& backend) {
      const int me = backend.rank();
      const auto at = [](int index) { return static_cast<std::size_t>(index); };
      std::uint64_t sequence = 0;
      for (const std::size_t count : {0UL, 1UL, 7UL, 1023UL}) {
        Values shared(count, me);
        test::broadcast(backend, buffer_of(shared), size - 1,
                        call_of(OpKind::broadcast, ++sequence));
        EXPECT_EQ(shared, Values(count, size - 1));
        Values input(count, me + 1), output(count, -1);
        test::all_reduce(backend, buffer_of(input), buffer_of(output), ReduceOp::sum,
                         call_of(OpKind::all_reduce, ++sequence));
        EXPECT_EQ(std::exchange(output, Values(count, -1)), Values(count, size * (size + 1) / 2));
        test::reduce(backend, buffer_of(input), buffer_of(output), 0, ReduceOp::max,
                     call_of(OpKind::reduce, ++sequence));
        EXPECT_EQ(input, Values(count, me + 1));
        EXPECT_EQ(output, Values(count, me == 0 ? size : -1));
        for (const bool even : {true, false}) {
          const auto length = [&](int rank) { return even ? count : count * at(rank % 2) + 1; };
          std::vector<Values> all(at(size));
          for (int rank = 0; rank < size; ++rank) all[at(rank)].resize(length(rank));
          Values own = part(me, 0, length(me));
          test::all_gather(backend, buffer_of(own), buffers_of(all),
                           call_of(OpKind::all_gather, ++sequence));
          for (int rank = 0; rank < size; ++rank)
            EXPECT_EQ(all[at(rank)], part(rank, 0, length(rank)));

          std::vector<Values> inputs;
          for (int rank = 0; rank < size; ++rank) inputs.push_back(Values(length(rank), me + rank));
          Values sum(length(me));
          test::reduce_scatter(backend, buffer_of(sum), buffers_of(inputs), ReduceOp::sum,
                               call_of(OpKind::reduce_scatter, ++sequence));
          EXPECT_EQ(sum, Values(length(me), size * (size - 1) / 2 + size * me));

          std::vector<Values> sent, received;
          for (int rank = 0; rank < size; ++rank) {
            sent.push_back(part(me, rank, length(me + rank)));
            received.push_back(Values(length(me + rank)));
          }
          test::all_to_all(backend, buffers_of(received), buffers_of(sent),
                           call_of(OpKind::all_to_all, ++sequence));
          for (int rank = 0; rank < size; ++rank)
            EXPECT_EQ(received[at(rank)], part(rank, me, length(me + rank)));

          std::vector<Values> gathered(me == size - 1 ? at(size) : 0);
          for (std::size_t rank = 0; rank < gathered.size(); ++rank)
            gathered[rank].resize(length(static_cast<int>(rank)));
          test::gather(backend, buffer_of(own), buffers_of(gathered), size - 1,
                       call_of(OpKind::gather, ++sequence));
          for (std::size_t rank = 0; rank < gathered.size(); ++rank)
            EXPECT_EQ(gathered[rank], part(static_cast<int>(rank), 0, gathered[rank].size()));

          std::vector<Values> scattered;
          for (int rank = 0; me == 0 && rank < size; ++rank)
            scattered.push_back(part(0, rank, length(rank)));
          Values got(length(me));
          test::scatter(backend, buffer_of(got), buffers_of(scattered), 0,
                        call_of(OpKind::scatter, ++sequence));
          EXPECT_EQ(got, part(0, me, length(me)));
        }
      }
      test::barrier(backend, call_of(OpKind::barrier, ++sequence));
    });
  }
}

TEST(NcclStateTest, ACallReturnsBeforeTheDeviceIsDone) {
  NcclJob job(2);
  Values values[2] = {{1}, {2}};
  std::atomic<int> returned = 0;
  job.simulation.freeze(true);
  job.run_well([&](Backend& backend) {
    test::all_reduce(backend, buffer_of(values[backend.rank()]), buffer_of(values[backend.rank()]),
                     ReduceOp::sum, call_of(OpKind::all_reduce, 1));
    const Work work = test::broadcast(backend, buffer_of(values[backend.rank()]), 0,
                                      async_call(OpKind::broadcast, 2));
    work.wait();
    if (++returned == 2) job.simulation.freeze(false);
    work.wait(Deadline::after(std::chrono::seconds(60)));
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(values[backend.rank()], Values{3});
  });
}

TEST(NcclStateTest, MessagesNeverWaitForThoseThatGoTheOtherWay) {
  for (const int size : {2, 3, 4}) {
    NcclJob job(size);
    job.run_well([&](Backend& backend) {
      const int me = backend.rank();
      const int next = (me + 1) % size;
      const int previous = (me + size - 1) % size;
      for (std::uint64_t round = 0; round < 3; ++round) {
        Values sent = {me, 7};
        Values received(2);
        const Work send =
            test::send(backend, buffer_of(sent), next, 0, async_call(OpKind::send, 2 * round + 1));
        const Work receive = test::receive(backend, buffer_of(received), previous, 0,
                                           async_call(OpKind::receive, 2 * round + 2));
        receive.wait(Deadline::after(std::chrono::seconds(60)));
        send.wait(Deadline::after(std::chrono::seconds(60)));
        EXPECT_EQ(received, (Values{previous, 7}));
      }
    });
    // Two communicators per neighbour, whatever the number of messages.
    EXPECT_EQ(job.simulation.count(0, "init_rank"), size == 2 ? 2 : 4);
  }
}

TEST(NcclStateTest, MessagesFromASecondDeviceHaveACommunicatorOfTheirOwn) {
  NcclJob job(2, {.devices = 2});
  job.run_well([&](Backend& backend) {
    const bool sends = backend.rank() == 0;
    for (const int device : {0, 1, 0}) {
      Values values = {sends ? device + 5 : 0};
      Buffer buffer = buffer_of(values);
      buffer.device_index = device;
      const Work work = sends
                            ? test::send(backend, buffer, 1, 0, async_call(OpKind::send, 1))
                            : test::receive(backend, buffer, 0, 0, async_call(OpKind::receive, 1));
      work.wait(Deadline::after(std::chrono::seconds(60)));
      EXPECT_EQ(values, Values{device + 5});
    }
  });
  // Of each device, both directions.
  EXPECT_EQ(job.simulation.count(0, "init_rank"), 4);
}

TEST(NcclStateTest, ASubgroupIsSplitFromACommunicatorThatIsThere) {
  for (const bool has_parent : {true, false}) {
    NcclJob job(4);
    job.host_wait = HostWait::yes;
    job.run_well([&](Backend& backend) {
      const int me = backend.rank();
      std::uint64_t sequence = 0;
      Values values = {me};
      if (has_parent)
        test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                         call_of(OpKind::all_reduce, ++sequence));
      const std::vector<int> ranks = me == 3   ? std::vector<int>()
                                     : me == 1 ? std::vector<int>{1}
                                               : std::vector<int>{2, 0};
      const int list = me == 3 ? -1 : me == 1 ? 1 : 0;
      const std::unique_ptr<Backend> child =
          backend.split(ranks, list, "some", call_of(OpKind::split, ++sequence));
      ASSERT_EQ(child == nullptr, me == 3);
      if (!child) return;
      Values mine = {me};
      test::broadcast(*child, buffer_of(mine), 0, call_of(OpKind::broadcast, 1));
      EXPECT_EQ(mine, Values{me == 1 ? 1 : 2});
      EXPECT_EQ(child->rank(), me == 0 ? 1 : 0);
    });
    EXPECT_EQ(job.simulation.count(0, "split"), has_parent ? 1 : 0);
    EXPECT_EQ(job.simulation.count(3, "split"), has_parent ? 1 : 0);
    EXPECT_EQ(job.simulation.count(0, "init_rank"), 1);
  }
}

TEST(NcclStateTest, TheQueueWaitsForTheCallerAndTheCallerForTheQueue) {
  NcclJob job(1);
  job.run_well([&](Backend& backend) {
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
  });
  const std::vector<std::string> expected = {"record",    "unique_id",  "init_rank",
                                             "make_wait", "all_reduce", "record",
                                             "make_wait", "finalize",   "destroy"};
  EXPECT_EQ(job.simulation.calls(0), expected);
}

TEST(NcclStateTest, WhatIsCopiedToLivesUntilTheDeviceHasDoneIt) {
  NcclJob job(1, {.runs_at_once = true});
  job.run_well([&](Backend& backend) {
    Values mine(4, 1);
    Call call = async_call(OpKind::all_reduce, 1);
    auto target = std::make_shared<Values>(4);
    const std::weak_ptr<Values> watched = target;
    call.finish = [target] { (*target)[0] = 1; };
    target.reset();
    job.simulation.freeze(true);
    const Work work =
        test::all_reduce(backend, buffer_of(mine), buffer_of(mine), ReduceOp::sum, std::move(call));
    while (job.simulation.count(0, "record") < 2) EXPECT_FALSE(work.is_completed());
    EXPECT_FALSE(watched.expired());
    job.simulation.freeze(false);
    while (!work.is_completed()) {
    }
    EXPECT_TRUE(watched.expired());
  });
}

TEST(NcclStateTest, AForkedChildMayNotUseTheGroup) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "another thread may hold a lock of the sanitizer's at the fork: the child then "
                  "waits for ever";
#endif
  NcclJob job(2);
  job.run_well([&](Backend& backend) {
    Values mine(4, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto refused = testing_support::error_of([&] {
        test::all_reduce(backend, buffer_of(mine), buffer_of(mine), ReduceOp::sum,
                         async_call(OpKind::all_reduce, 1));
      });
      ::_exit(refused && refused->code() == base::ErrorCode::kUsage ? 7 : 8);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, W_EXITCODE(7, 0));
    const Work work = test::all_reduce(backend, buffer_of(mine), buffer_of(mine), ReduceOp::sum,
                                       async_call(OpKind::all_reduce, 1));
    work.wait(Deadline::after(std::chrono::seconds(60)));
    EXPECT_EQ(mine, Values(4, 2));
  });
}

}  // namespace
}  // namespace dtrun::test
