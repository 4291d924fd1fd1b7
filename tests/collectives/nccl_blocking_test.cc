// The nccl backend where NCCL and CUDA block: kernels that hang, calls that wait for all kernels of
// a device, a store that does not answer.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "collectives/nccl_job.h"
#include "collectives/stuck_store.h"
#include "support/promptness.h"

namespace dtrun::test {
namespace {

using testing_support::kPatience;

constexpr auto kMoment = std::chrono::milliseconds(300);

void expect_no_violation(NcclJob& job) {
  for (const std::string& violation : job.simulation.violations()) ADD_FAILURE() << violation;
}

/// Makes the group's communicator.
void meet(Backend& backend) {
  test::barrier(backend, call_of(OpKind::barrier, 1));
}

// The kernel of the message hangs as well as that of the all_reduce, on another communicator.
void abort_beside_a_kernel_that_hangs(int version) {
  NcclJob job(2, {.version = version});
  const auto begin = Deadline::Clock::now();
  const auto thrown = job.run([&](Backend& backend) {
    meet(backend);
    Values values = {1};
    const bool sends = backend.rank() == 0;
    const auto message = [&](std::uint64_t sequence) {
      return sends
                 ? test::send(backend, buffer_of(values), 1, 0, async_call(OpKind::send, sequence))
                 : test::receive(backend, buffer_of(values), 0, 0,
                                 async_call(OpKind::receive, sequence));
    };
    message(1).wait(Deadline::after(kPatience));
    if (backend.rank() == 1) return;
    const Work hanging = message(2);
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 2, Deadline::after(kMoment)))
        .wait();
    test::barrier(backend, call_of(OpKind::barrier, 3));
  });
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ErrorCode::kTimeout);
  expect_no_violation(job);
  EXPECT_LT(Deadline::Clock::now() - begin, kPatience);
}

TEST(NcclBlockingTest, AnAbortDoesNotWaitForTheKernelOfAnotherCommunicator) {
  abort_beside_a_kernel_that_hangs(22809);
}
TEST(NcclBlockingTest, NorDoesItWaitWhereAGroupOfCallsFreesAtOnce) {
  abort_beside_a_kernel_that_hangs(22100);
}

// A group and its child hang on one device. The child's deadline comes while the group's abort
// waits for the child's kernel.
TEST(NcclBlockingTest, AnAbortThatBlocksDoesNotKeepOtherGroupsFromTheirDeadline) {
  NcclJob job(2);
  const auto begin = Deadline::Clock::now();
  const auto thrown = job.run([&](Backend& backend) {
    meet(backend);
    const std::unique_ptr<Backend> child =
        backend.split({0, 1}, 0, "child", call_of(OpKind::split, 2));
    meet(*child);
    if (backend.rank() == 1) return;
    Values values = {1};
    Call late = async_call(OpKind::all_reduce, 2);
    late.deadline = Deadline::after(3 * kMoment);
    const Work of_child = test::all_reduce(*child, buffer_of(values), buffer_of(values),
                                           ReduceOp::sum, std::move(late));
    Call later = async_call(OpKind::all_reduce, 3);
    later.deadline = Deadline::after(kMoment);
    const Work of_parent = test::all_reduce(backend, buffer_of(values), buffer_of(values),
                                            ReduceOp::sum, std::move(later));
    for (const Work* work : {&of_parent, &of_child}) {
      while (!work->exception() && Deadline::Clock::now() - begin < kPatience)
        std::this_thread::yield();
      EXPECT_TRUE(work->exception());
    }
  });
  for (const auto& error : thrown) EXPECT_FALSE(error) << error->what();
  expect_no_violation(job);
}

TEST(NcclBlockingTest, AnAbortThatNeverReturnsHoldsUpNobody) {
  NcclJob job(2);
  job.abort_patience = kMoment;
  job.simulation.hang_aborts(true);
  const auto begin = Deadline::Clock::now();
  testing::internal::CaptureStderr();
  const auto thrown = job.run([&](Backend& backend) {
    meet(backend);
    if (backend.rank() == 1) return;
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 2, Deadline::after(kMoment)));
    test::barrier(backend, call_of(OpKind::barrier, 3));
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LT(Deadline::Clock::now() - begin, kPatience);
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(contains(log, "group 'world': NCCL has not ended 1 communicator for 300 ms")) << log;
  job.simulation.hang_aborts(false);
}

TEST(NcclBlockingTest, ABurstOfAsynchronousCallsGoesOnWithoutAWaiter) {
  constexpr std::uint64_t kCalls = 1200;
  NcclJob job(2, {.enqueue_time = std::chrono::microseconds(100)});
  const auto begin = Deadline::Clock::now();
  job.run_well([&](Backend& backend) {
    meet(backend);
    Values values = {1};
    std::vector<Work> works;
    for (std::uint64_t i = 0; i < kCalls; ++i)
      works.push_back(test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::max,
                                       async_call(OpKind::all_reduce, i + 2)));
    // Nobody waits: what is counted here is the watchdog's doing.
    while (job.simulation.count(backend.rank(), "all_reduce") <= static_cast<int>(kCalls) &&
           Deadline::Clock::now() - begin < kPatience)
      std::this_thread::yield();
    works.back().wait(Deadline::after(kPatience));
  });
  // At one operation in each of the watchdog's 10 ms they took twelve seconds.
  EXPECT_LT(Deadline::Clock::now() - begin, std::chrono::seconds(10));
}

/// That error ends a wait which nothing else would, while the store does not answer.
void expect_abort_in_spite_of(NcclJob& job, StuckStore& store,
                              const std::function<void(Backend&)>& wait) {
  const auto thrown = job.run([&](Backend& backend) {
    if (backend.rank() == 1) return;
    std::future<std::optional<Error>> waiter =
        std::async(std::launch::async, [&] { return error_of([&] { wait(backend); }); });
    store.await_stuck_call();
    const auto begin = Deadline::Clock::now();
    backend.abort(Error(ErrorCode::kAborted, "the loss is nan"));
    const std::optional<Error> error = waiter.get();
    EXPECT_LT(Deadline::Clock::now() - begin, kPatience / 2);
    ASSERT_TRUE(error);
    EXPECT_TRUE(contains(error->what(), "the loss is nan")) << error->what();
    store.answer();
  });
  for (const auto& error : thrown) EXPECT_FALSE(error) << error->what();
  expect_no_violation(job);
}

TEST(NcclBlockingTest, AStoreThatDoesNotAnswerDelaysNoAbortWhereRanksMeet) {
  NcclJob job(2);
  const auto store = std::make_shared<StuckStore>(job.store);
  job.store = store;
  store->get_stuck();
  expect_abort_in_spite_of(job, *store, [&](Backend& backend) { meet(backend); });
}

TEST(NcclBlockingTest, AStoreThatDoesNotAnswerDelaysNoAbortOfWhatRuns) {
  NcclJob job(2);
  job.host_wait = HostWait::yes;
  const auto store = std::make_shared<StuckStore>(job.store);
  job.store = store;
  std::atomic<bool> has_met{false};
  const auto thrown = job.run([&](Backend& backend) {
    meet(backend);
    if (backend.rank() == 1) {
      has_met.wait(false);
      return;
    }
    store->get_stuck();
    std::future<std::optional<Error>> waiter = std::async(std::launch::async, [&] {
      return error_of([&] { test::barrier(backend, call_of(OpKind::barrier, 2)); });
    });
    store->await_stuck_call();
    const auto begin = Deadline::Clock::now();
    backend.abort(Error(ErrorCode::kAborted, "the loss is nan"));
    const std::optional<Error> error = waiter.get();
    EXPECT_LT(Deadline::Clock::now() - begin, kPatience / 2);
    EXPECT_TRUE(error && contains(error->what(), "the loss is nan"));
    store->answer();
    has_met = true;
    has_met.notify_all();
  });
  for (const auto& error : thrown) EXPECT_FALSE(error) << error->what();
  expect_no_violation(job);
}

TEST(NcclBlockingTest, ADeadlineHoldsWhileTheStoreDoesNotAnswer) {
  NcclJob job(2);
  const auto store = std::make_shared<StuckStore>(job.store);
  job.store = store;
  store->get_stuck();
  const auto begin = Deadline::Clock::now();
  const auto thrown = job.run([&](Backend& backend) {
    if (backend.rank() == 1) return;
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1, Deadline::after(kMoment)));
  });
  EXPECT_LT(Deadline::Clock::now() - begin, kPatience);
  store->answer();
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(contains(thrown[0]->what(), "the store does not answer")) << thrown[0]->what();
}

TEST(NcclBlockingTest, BothDirectionsOfAPairAreMadeBeforeTheFirstMessageRuns) {
  NcclJob job(2);
  job.simulation.freeze(true);
  std::atomic<int> made = 0;
  job.run_well([&](Backend& backend) {
    const int me = backend.rank();
    Values there = {5}, back = {6};
    const auto message = [&](bool sends, Values& values, std::uint64_t sequence) {
      return sends ? test::send(backend, buffer_of(values), 1 - me, 0,
                                async_call(OpKind::send, sequence))
                   : test::receive(backend, buffer_of(values), 1 - me, 0,
                                   async_call(OpKind::receive, sequence));
    };
    const Work first = message(me == 0, there, 1);
    // Its stream waits for it, not this thread: NCCL has it, and its kernel runs.
    first.wait();
    const Work second = message(me == 1, back, 2);
    second.wait();
    if (++made == 2) job.simulation.freeze(false);
    first.wait(Deadline::after(kPatience));
    second.wait(Deadline::after(kPatience));
    EXPECT_EQ(job.simulation.made_beside_kernels(me), 0);
  });
}

TEST(NcclBlockingTest, AMessagesCommunicatorIsBegunWhenTheDevicesKernelsAreOver) {
  NcclJob job(2);
  job.quiet_patience = kPatience;
  std::atomic<int> called = 0;
  job.run_well([&](Backend& backend) {
    meet(backend);
    job.store->barrier("met", 2);
    job.simulation.freeze(true);
    Values values = {backend.rank() + 1};
    Values message = {7};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 2));
    const Work work =
        backend.rank() == 0
            ? test::send(backend, buffer_of(message), 1, 0, async_call(OpKind::send, 1))
            : test::receive(backend, buffer_of(message), 0, 0, async_call(OpKind::receive, 1));
    const std::optional<Error> early =
        error_of([&] { work.wait(Deadline::after(std::chrono::milliseconds(100))); });
    EXPECT_TRUE(early);
    EXPECT_EQ(job.simulation.count(backend.rank(), "init_rank"), 1);
    if (++called == 2) job.simulation.freeze(false);
    work.wait(Deadline::after(kPatience));
  });
  for (const int rank : {0, 1}) EXPECT_EQ(job.simulation.made_beside_kernels(rank), 0);
}

// Only a program that asks for it in this order gets there: NCCL may hang, and says nothing.
TEST(NcclBlockingTest, ACommunicatorThatWaitsForAKernelSaysSo) {
  NcclJob job(3);
  const auto thrown = job.run([&](Backend& backend) {
    meet(backend);
    Values values = {1};
    if (backend.rank() == 2) return;
    if (backend.rank() == 0)
      test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                       call_of(OpKind::all_reduce, 2));
    const Deadline deadline = Deadline::after(3 * kMoment);
    if (backend.rank() == 0)
      test::send(backend, buffer_of(values), 1, 0, call_of(OpKind::send, 1, deadline));
    else
      test::receive(backend, buffer_of(values), 0, 0, call_of(OpKind::receive, 1, deadline));
  });
  ASSERT_TRUE(thrown[0]);
  EXPECT_TRUE(contains(thrown[0]->what(), "all_reduce #2 (i64 x 0, sum) still runs on its device"))
      << thrown[0]->what();
}

TEST(NcclBlockingTest, ASplitWaitsForTheKernelsOfItsParent) {
  NcclJob job(2);
  std::atomic<int> called = 0;
  job.run_well([&](Backend& backend) {
    meet(backend);
    job.store->barrier("met", 2);
    job.simulation.freeze(true);
    job.store->barrier("frozen", 2);
    Values values = {backend.rank() + 1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 2));
    std::thread thaw([&] {
      if (++called < 2) return;
      // Time for a split that does not wait.
      const auto end = Deadline::after(std::chrono::milliseconds(100));
      while (!end.expired()) std::this_thread::yield();
      EXPECT_EQ(job.simulation.count(0, "split"), 0);
      job.simulation.freeze(false);
    });
    const std::unique_ptr<Backend> child =
        backend.split({0, 1}, 0, "child", call_of(OpKind::split, 3));
    thaw.join();
    EXPECT_EQ(values, Values{3});
    test::barrier(*child, call_of(OpKind::barrier, 1));
  });
}

}  // namespace
}  // namespace dtrun::test
