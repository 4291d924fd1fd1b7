// What a Work says of its operation, and the callbacks behind it, on every backend.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl_job.h"
#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/call_observer.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "make_backend.h"
#include "support/promptness.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"
#include "through_host/through_host_backend.h"

namespace dtrun::collectives {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using std::chrono::milliseconds;
using tensors::LocalTensor;
using tensors::ones;
using testing_support::contains;
using testing_support::error_of;

constexpr CallOptions kAsync{.async = true};

std::optional<Error> error_in(const std::exception_ptr& outcome) {
  if (!outcome) return std::nullopt;
  return error_of([&] { std::rethrow_exception(outcome); });
}

/// What it wants to do when a call has ended cannot be done.
class ThrowingObserver : public CallObserver {
 public:
  void on_call(const ObservedCall&) override {}
  std::function<void()> at_end(const ObservedCall&) override {
    return [] { throw Error(ErrorCode::kSystem, "no memory for the results"); };
  }
};

// Whoever waited moved both; now the progress thread does, though nobody tells it to.
TEST(WorkTest, WhatIsInFlightGoesOnAfterAWaitForSomethingElse) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    for (int i = 0; i < 50; ++i) {
      const LocalTensor first = ones({16 << 10}), last = ones({16 << 10});
      std::promise<void> over;
      const Work work = group.all_reduce(first, ReduceOp::sum, kAsync);
      const Work rest =
          group.all_reduce(last, ReduceOp::sum, kAsync).then([&](const std::exception_ptr&) {
            over.set_value();
          });
      work.wait();
      over.get_future().wait();
      EXPECT_EQ(last.data_as<float>()[(16 << 10) - 1], 2);
    }
  });
}

// The owner's thread may be the one that runs the callback, and moves nothing meanwhile. One that
// the progress thread runs holds that up, as then() says.
TEST(WorkTest, WhatIsInFlightGoesOnWhileItsOwnerRunsACallback) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    for (int i = 0; i < 20; ++i) {
      const LocalTensor first = ones({4}), last = ones({1 << 20});
      const Work rest = group.all_reduce(last, ReduceOp::sum, kAsync);
      const auto end = Deadline::after(testing_support::kPatience);
      const std::thread::id owner = std::this_thread::get_id();
      const Work callback =
          group.all_reduce(first, ReduceOp::sum, kAsync).then([&](const std::exception_ptr&) {
            if (std::this_thread::get_id() != owner) return;
            // elapsed() moves nothing, other than is_completed().
            while (!rest.elapsed() && !end.expired()) std::this_thread::yield();
            EXPECT_TRUE(rest.elapsed()) << "nobody moves what is in flight";
          });
      callback.wait();
      rest.wait();
      EXPECT_EQ(last.data_as<float>()[(1 << 20) - 1], 2);
    }
  });
}

TEST(WorkTest, WhatFailsBehindAnAsynchronousCallFailsItAndNoOther) {
  std::vector<std::string> backends = {"cpu"};
  if (is_backend_available("gloo")) backends.push_back("gloo");
  for (const std::string& backend : backends)
    test::run_ranks(2, {.backend = backend}, [&](const ProcessGroup& group) {
      const LocalTensor tensor = ones({3});
      std::optional<Error> error;
      {
        std::optional<ThrowingObserver> observer;
        if (group.rank() == 0) observer.emplace();
        const Work work = group.all_reduce(tensor, ReduceOp::max, kAsync);
        error = error_of([&] { work.wait(); });
      }
      EXPECT_EQ(error.has_value(), group.rank() == 0) << backend;
      if (error) {
        EXPECT_EQ(error->code(), ErrorCode::kSystem) << error->what();
      }
      // The group goes on.
      group.all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector(), std::vector<double>(3, 2)) << backend;
    });
}

class WorkCallbackTest : public testing::TestWithParam<std::string> {
 protected:
  /// Ranks as threads; tensors are in host memory whatever the backend.
  static void run(int size, const test::RankBody& body) {
    if (GetParam() != "nccl") return test::run_ranks(size, options(), body);
    test::NcclJob job(size);
    job.tensors_of = tensors::DeviceType::cpu;
    job.expect_well(job.run_owners([&](std::unique_ptr<Backend> backend) {
      GroupOptions given = test::group_options(job.store, backend->rank(), backend->size());
      body(ProcessGroup::over(std::move(given), std::move(backend)));
    }));
  }
  static test::RankOptions options() {
    if (GetParam() == "tcp") return {.transport = Transport::tcp};
    return {.backend = GetParam()};
  }
};

TEST_P(WorkCallbackTest, RunsOnceWhenTheOperationIsDoneWithItsResultThere) {
  run(3, [](const ProcessGroup& group) {
    for (const std::int64_t count : {1, 200000}) {
      const LocalTensor tensor = tensors::full({count}, group.rank() + 1);
      std::atomic<int> runs = 0;
      double seen = 0;
      const Work first = group.all_reduce(tensor, ReduceOp::sum, kAsync);
      const Work second = first.then([&](const std::exception_ptr& error) {
        EXPECT_EQ(error, nullptr);
        seen = tensor.to_vector().back();
        ++runs;
      });
      second.wait();
      EXPECT_EQ(runs, 1);
      EXPECT_EQ(seen, 6);
      EXPECT_TRUE(first.is_success());
      EXPECT_TRUE(second.is_success());
      ASSERT_TRUE(first.elapsed().has_value());
      ASSERT_TRUE(second.elapsed().has_value());
      EXPECT_GT(first.elapsed()->count(), 0);
      EXPECT_GE(*second.elapsed(), *first.elapsed());
      EXPECT_EQ(first.elapsed(), first.elapsed());
    }
  });
}

TEST_P(WorkCallbackTest, BehindWhatIsDoneItRunsHereAndAtOnce) {
  run(2, [](const ProcessGroup& group) {
    const LocalTensor tensor = ones({4});
    const Work work = group.all_reduce(tensor, ReduceOp::sum, kAsync);
    work.wait();
    while (!work.is_completed()) std::this_thread::yield();  // nccl's wait() is the stream's
    std::thread::id on;
    const Work next =
        work.then([&](const std::exception_ptr&) { on = std::this_thread::get_id(); });
    EXPECT_EQ(on, std::this_thread::get_id());
    EXPECT_TRUE(next.is_completed());
  });
}

TEST_P(WorkCallbackTest, WhatOneThrowsIsTheErrorOfItsWorkAndTheNextOneGetsIt) {
  run(2, [](const ProcessGroup& group) {
    const LocalTensor tensor = ones({4});
    std::optional<Error> seen;
    const Work thrower =
        group.all_reduce(tensor, ReduceOp::sum, kAsync).then([](const std::exception_ptr&) {
          throw Error(ErrorCode::kUsage, "thrown by the callback");
        });
    const Work last =
        thrower.then([&](const std::exception_ptr& error) { seen = error_in(error); });
    last.wait();
    EXPECT_TRUE(last.is_success());
    ASSERT_TRUE(seen.has_value());
    EXPECT_EQ(seen->summary(), "thrown by the callback");
    EXPECT_TRUE(thrower.is_completed());
    EXPECT_FALSE(thrower.is_success());
    EXPECT_EQ(error_of([&] { thrower.wait(); })->code(), ErrorCode::kUsage);
  });
}

TEST_P(WorkCallbackTest, RunsThoughNobodyWaits) {
  run(2, [](const ProcessGroup& group) {
    const LocalTensor tensor = ones({100000});
    auto done = std::make_shared<std::promise<double>>();
    std::future<double> result = done->get_future();
    group.all_reduce(tensor, ReduceOp::sum, kAsync).then([=](const std::exception_ptr& error) {
      if (error) return done->set_exception(error);
      done->set_value(tensor.to_vector().front());
    });
    ASSERT_EQ(result.wait_for(testing_support::kPatience), std::future_status::ready);
    EXPECT_EQ(result.get(), 2);
    group.barrier();
  });
}

TEST_P(WorkCallbackTest, TheTensorsLiveUntilItHasRun) {
  run(2, [](const ProcessGroup& group) {
    if (group.rank() == 1) {
      group.barrier();
      return group.send(ones({1}), 0);
    }
    float element = 0;
    std::atomic<bool> is_gone = false;
    bool was_gone = true;
    Work next;
    {
      const LocalTensor tensor(
          tensors::Storage::wrap(&element, sizeof element, tensors::kCpu, [&] { is_gone = true; }),
          tensors::DType::f32, {1}, {1});
      const Work work = group.irecv(tensor, 1);
      EXPECT_EQ(work.elapsed(), std::nullopt);
      EXPECT_FALSE(work.is_success());
      next = work.then([&](const std::exception_ptr&) { was_gone = is_gone; });
    }
    EXPECT_FALSE(is_gone);
    group.barrier();
    next.wait();
    EXPECT_FALSE(was_gone);
    EXPECT_EQ(element, 1);
    // The thread that has run it lets go of them next.
    while (!is_gone) std::this_thread::yield();
  });
}

TEST_P(WorkCallbackTest, AWaitWithADeadlineEndsBeforeTheOperation) {
  run(2, [](const ProcessGroup& group) {
    if (group.rank() == 0) {
      const LocalTensor tensor = tensors::zeros({1});
      const Work next = group.irecv(tensor, 1).then([](const std::exception_ptr&) {});
      EXPECT_EQ(error_of([&] { next.wait(Deadline::after(milliseconds(20))); })->code(),
                ErrorCode::kTimeout);
      EXPECT_FALSE(next.is_completed());
      group.barrier();
      next.wait();
    } else {
      group.barrier();
      group.send(ones({1}), 0);
    }
  });
}

TEST_P(WorkCallbackTest, MayUseTheGroup) {
  run(2, [](const ProcessGroup& group) {
    const LocalTensor first = ones({8}), second = ones({8});
    Work inner;
    const Work outer =
        group.all_reduce(first, ReduceOp::sum, kAsync).then([&](const std::exception_ptr&) {
          inner = group.all_reduce(second, ReduceOp::max, kAsync);
        });
    outer.wait();
    inner.then([](const std::exception_ptr&) {}).wait();
    EXPECT_EQ(second.to_vector(), std::vector<double>(8, 1));
  });
}

/// Over gloo a collective begins when the one before it, with its callbacks, is over.
TEST(GlooCallbackTest, MustNotWaitForACollectiveOfItsGroup) {
  if (!is_backend_available("gloo")) GTEST_SKIP() << "backend gloo is not built";
  test::run_ranks(2, {.backend = "gloo"}, [](const ProcessGroup& group) {
    const LocalTensor tensors[] = {ones({8}), ones({8}), ones({8})};
    const ProcessGroup other = group.split({{0, 1}}, "other");
    std::optional<Error> waited, blocked, elsewhere;
    Work next;
    const Work behind =
        group.all_reduce(tensors[0], ReduceOp::sum, kAsync).then([&](const std::exception_ptr&) {
          next = group.all_reduce(tensors[1], ReduceOp::sum, kAsync);
          waited = error_of([&] { next.wait(); });
          elsewhere = error_of([&] { other.all_reduce(tensors[2]); });
        });
    behind.wait();
    next.wait();
    EXPECT_EQ(tensors[1].to_vector(), std::vector<double>(8, 2));
    EXPECT_FALSE(elsewhere.has_value());
    EXPECT_EQ(tensors[2].to_vector(), std::vector<double>(8, 2));
    other.all_reduce(tensors[0], ReduceOp::sum, kAsync)
        .then([&](const std::exception_ptr&) {
          blocked = error_of([&] { other.all_reduce(tensors[2]); });
        })
        .wait();
    for (const std::optional<Error>& error : {waited, blocked}) {
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kUsage) << error->what();
      EXPECT_TRUE(contains(error->what(), "a callback behind a collective waits for all_reduce"))
          << error->what();
    }
  });
}

/// What the callback behind a receive that never comes gets, on each rank where there is one.
std::vector<std::optional<Error>> errors_behind_a_receive(
    int size, const test::RankOptions& options,
    const std::function<void(const ProcessGroup&)>& break_it) {
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(size));
  test::run_failing_ranks(size, options, [&](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::zeros({1});
    if (group.rank() == size - 1) {
      for (int rank = 0; rank < size - 1; ++rank) group.recv(tensor, rank, 7);
      return break_it(group);
    }
    std::promise<std::optional<Error>> failed;
    group.irecv(tensor, size - 1).then([&](const std::exception_ptr& error) {
      failed.set_value(error_in(error));
    });
    group.isend(ones({1}), size - 1, 7);
    std::future<std::optional<Error>> result = failed.get_future();
    if (result.wait_for(testing_support::kPatience) != std::future_status::ready) {
      ADD_FAILURE() << "the callback did not run";
      group.shutdown();
    }
    errors[static_cast<std::size_t>(group.rank())] = result.get();
  });
  return errors;
}

TEST(WorkFailureTest, ACallbackHearsOfAPeersFailureThoughNobodyWaits) {
  std::vector<test::RankOptions> all{{}, {.transport = Transport::tcp}};
  if (is_backend_available("gloo")) all.push_back({.backend = "gloo"});
  for (const test::RankOptions& options : all) {
    const auto errors = errors_behind_a_receive(3, options, [](const ProcessGroup& group) {
      static_cast<void>(error_of([&] { group.all_reduce(LocalTensor()); }));
    });
    for (const std::size_t rank : {0, 1}) {
      ASSERT_TRUE(errors[rank].has_value());
      EXPECT_EQ(errors[rank]->code(), ErrorCode::kPeerFailed) << errors[rank]->what();
      EXPECT_TRUE(contains(errors[rank]->what(), "rejected its all_reduce #1"))
          << errors[rank]->what();
    }
  }
}

TEST(WorkFailureTest, WhoLeavesRunsWhatIsBehindItsReceives) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    std::optional<Error> seen;
    const Work work = group.irecv(tensors::zeros({1}), 1 - group.rank());
    const Work next = work.then([&](const std::exception_ptr& error) { seen = error_in(error); });
    group.shutdown();
    EXPECT_TRUE(next.is_completed());
    ASSERT_TRUE(seen.has_value());
    EXPECT_FALSE(work.is_success());
    EXPECT_TRUE(work.elapsed().has_value());
  });
}

TEST(WorkFailureTest, ACallbackBehindAnNcclCallHearsOfItsFailure) {
  test::NcclJob job(2);
  job.run([&](Backend& backend) {
    test::Values values(4, 1);
    test::all_reduce(backend, test::buffer_of(values), test::buffer_of(values), ReduceOp::sum,
                     test::async_call(OpKind::all_reduce, 1))
        .wait(Deadline::after(std::chrono::seconds(60)));
    if (backend.rank() == 1) return;
    std::promise<std::optional<Error>> failed;
    const Work work = test::all_reduce(backend, test::buffer_of(values), test::buffer_of(values),
                                       ReduceOp::sum, test::async_call(OpKind::all_reduce, 2));
    work.then([&](const std::exception_ptr& error) { failed.set_value(error_in(error)); });
    EXPECT_EQ(work.elapsed(), std::nullopt);
    backend.reject({}, Error(ErrorCode::kInvalidArgument, "the next call was wrong"));
    const std::optional<Error> error = failed.get_future().get();
    ASSERT_TRUE(error.has_value());
    EXPECT_TRUE(contains(error->what(), "the next call was wrong")) << error->what();
    EXPECT_TRUE(work.elapsed().has_value());
  });
}

TEST(WorkTest, ACallThatBlockedHasAWorkThatIsDone) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const Work work = group.all_reduce(ones({4}));
    EXPECT_TRUE(work.is_success());
    EXPECT_EQ(work.elapsed(), std::nullopt);
    bool has_run = false;
    const Work next =
        work.then([&](const std::exception_ptr& error) { has_run = error == nullptr; });
    EXPECT_TRUE(has_run);
    EXPECT_TRUE(next.is_success());
    EXPECT_TRUE(next.elapsed().has_value());
    EXPECT_EQ(error_of([&] { work.then({}); })->code(), ErrorCode::kInvalidArgument);
  });
}

// Its result is on the device by then.
TEST(WorkTest, ACallbackBehindAStagedCallFindsTheResult) {
  test::NcclSimulation simulation;
  const std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const std::shared_ptr<DeviceApi> device = simulation.device_of(rank);
      through_host::ThroughHostBackend backend(
          make_cpu_backend(test::group_options(store, rank, 2)), device,
          std::make_shared<through_host::PinnedPool>(device));
      test::Values values(5, rank + 1), seen;
      test::all_reduce(backend, test::buffer_of(values), test::buffer_of(values), ReduceOp::sum,
                       test::async_call(OpKind::all_reduce, 1))
          .then([&](const std::exception_ptr&) { seen = values; })
          .wait();
      EXPECT_EQ(seen, test::Values(5, 3));
    });
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(, WorkCallbackTest, testing::ValuesIn([] {
                           std::vector<std::string> names{"cpu", "tcp", "nccl"};
                           if (is_backend_available("gloo")) names.emplace_back("gloo");
                           return names;
                         }()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace dtrun::collectives
