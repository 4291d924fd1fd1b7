// ProcessGroup::abort: what is in flight ends on all ranks, with the name of the rank that aborted.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl_job.h"
#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/flight_record.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/rendezvous/job_page.h"
#include "dtrun/tensor/ops.h"
#include "support/promptness.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;
using tensors::ones;
using testing_support::contains;
using testing_support::error_of;

class AbortTest : public testing::TestWithParam<std::string> {
 protected:
  static test::RankOptions options() {
    if (GetParam() == "tcp") return {.transport = Transport::tcp};
    if (GetParam() == "mixed") return {.machines = {2}};
    return {.backend = GetParam()};
  }
};

void expect_abort(const std::optional<Error>& error) {
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kAborted) << error->what();
  EXPECT_EQ(error->summary(), "rank 1 has aborted group 'world': the loss is nan");
}

TEST_P(AbortTest, EndsWhatIsInFlightEverywhereAndEveryLaterCall) {
  const auto begin = Deadline::Clock::now();
  test::run_ranks(3, options(), [](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::zeros({1});
    const LocalTensor large = ones({200000});
    if (group.rank() == 1) {
      // The others are in their calls by then, or come to them afterwards.
      for (const int peer : {0, 2}) group.recv(tensor, peer);
      group.abort("the loss is nan");
      group.abort("a second reason");
    } else {
      group.send(tensor, 1);
      expect_abort(error_of([&] { group.all_reduce(large); }));
    }
    expect_abort(error_of([&] { group.all_reduce(tensor); }));
    expect_abort(error_of([&] { group.all_reduce(large); }));
    expect_abort(error_of([&] { group.isend(tensor, (group.rank() + 1) % 3); }));
    group.abort("a third reason");
    expect_abort(error_of([&] { group.barrier(); }));
  });
  EXPECT_LT(Deadline::Clock::now() - begin, testing_support::kPatience);
}

TEST_P(AbortTest, MayComeFromAnotherThreadWhileThisOneWaits) {
  test::run_ranks(2, options(), [](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::zeros({1});
    if (group.rank() == 0) {
      // Nobody sends it: this rank waits until the other thread of rank 1 has aborted.
      return expect_abort(error_of([&] { group.recv(tensor, 1); }));
    }
    const Work in_flight = group.irecv(tensor, 0, 5);
    std::thread other([&] { group.abort("the loss is nan"); });
    expect_abort(error_of([&] { group.recv(tensor, 0, 7); }));
    other.join();
    expect_abort(error_of([&] { in_flight.wait(); }));
    EXPECT_FALSE(in_flight.is_success());
  });
}

TEST_P(AbortTest, ASubgroupIsAGroupOfItsOwn) {
  test::run_ranks(2, options(), [](const ProcessGroup& group) {
    const ProcessGroup pair = group.split({{0, 1}}, "pair");
    pair.barrier();
    group.barrier();  // the other rank is through the pair's
    if (group.rank() == 0) pair.abort();
    const std::optional<Error> error = error_of([&] { pair.all_reduce(ones({1})); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->summary(), "rank 0 has aborted group 'pair'");
    const LocalTensor sum = ones({1});
    group.all_reduce(sum);
    EXPECT_EQ(sum.item(), 2);
  });
}

INSTANTIATE_TEST_SUITE_P(, AbortTest, testing::ValuesIn([] {
                           std::vector<std::string> names{"cpu", "tcp", "mixed"};
                           if (is_backend_available("gloo")) names.emplace_back("gloo");
                           return names;
                         }()),
                         [](const auto& tested) { return tested.param; });

TEST(AbortOfOneTest, IsForGroupsOfOneRankToo) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    group.abort();
    EXPECT_EQ(error_of([&] { group.all_reduce(ones({1})); })->code(), ErrorCode::kAborted);
    EXPECT_EQ(error_of([&] { group.barrier(); })->code(), ErrorCode::kAborted);
  });
}

TEST(AbortOfOneTest, IsNothingInAGroupThatWasLeft) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    group.barrier();
    group.shutdown();
    group.abort("too late");
    EXPECT_TRUE(contains(error_of([&] { group.barrier(); })->what(), "has left"));
  });
}

TEST(AbortProcessTest, ReachesRanksInOtherProcessesAndNoForkedChildMayDoIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "another thread may hold a lock of the sanitizer's at the fork: the child then "
                  "waits for ever";
#endif
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::RankProcesses ranks(
        3, {.transport = transport}, test::RankProcesses::Guard::job_page,
        [](const ProcessGroup& group) {
          group.barrier();
          if (group.rank() != 1) {
            group.barrier();
            return;
          }
          const pid_t child = ::fork();
          if (child == 0)
            ::_exit(error_of([&] { group.abort(); })->code() == ErrorCode::kUsage ? 7 : 0);
          int status = -1;
          EXPECT_EQ(::waitpid(child, &status, 0), child);
          EXPECT_EQ(status, W_EXITCODE(7, 0));
          group.abort("the loss is nan");
          // Before it leaves: the others are told first.
          expect_abort(error_of([&] { group.barrier(); }));
        });
    for (const int rank : {0, 2}) {
      const test::RankProcesses::Ended ended = ranks.wait(rank);
      ASSERT_TRUE(ended.thrown.has_value());
      EXPECT_EQ(ended.thrown->code, ErrorCode::kAborted) << ended.thrown->text;
      EXPECT_TRUE(contains(ended.thrown->text, "rank 1 has aborted group 'world': the loss is nan"))
          << ended.thrown->text;
      // A launcher blames rank 1 for their ends.
      EXPECT_EQ(ranks.job_page().slot(rank).victim_of.load(), 1);
    }
    EXPECT_EQ(ranks.wait(1).status, 0);
  }
}

// The abort comes while rank 0 looks for rank 1's part on the short way, or just before or after.
TEST(AbortRecordTest, ACallThatMeetsItIsRecordedOnceAndHasEnded) {
  for (int round = 0; round < 200; ++round) {
    const auto page = test::page_of_ranks(2);
    test::run_ranks(2, {.job_page = page}, [](const ProcessGroup& group) {
      const LocalTensor tensor = ones({1});
      if (group.rank() == 0) {
        group.send(tensor, 1);
      } else {
        group.recv(tensor, 0);
        group.abort("the loss is nan");
      }
      expect_abort(error_of([&] { group.all_reduce(tensor); }));
    });
    const auto operations = rendezvous::read_flight(*page).ranks.at(0).operations;
    ASSERT_EQ(operations.size(), 2U) << "round " << round;
    EXPECT_EQ(operations[0].state, rendezvous::FlightState::done);
    EXPECT_EQ(operations[1].state, rendezvous::FlightState::failed) << "round " << round;
    EXPECT_EQ(operations[1].name, "all_reduce");
  }
}

// No operation is in flight, so no watchdog hears of it: the ranks wait for one another's word.
TEST(NcclAbortTest, ReachesThePeersThatCompareTheirCalls) {
  const auto begin = Deadline::Clock::now();
  test::NcclJob job(3);
  job.compare_calls = true;
  const auto thrown = job.run([&](Backend& backend) {
    if (backend.rank() == 0) return;
    if (backend.rank() == 1) {
      std::thread other([&] {
        // Rank 2 has come to the split, and waits there for rank 0 as this rank does.
        job.store->get("come");
        backend.abort(
            Error(ErrorCode::kAborted, "rank 1 has aborted group 'world': the loss is nan"));
      });
      const auto error = error_of([&] {
        backend.split({1, 2}, 0, "pair", test::call_of(OpKind::split, 1));
      });
      other.join();
      expect_abort(error);
      return;
    }
    job.store->set("come", "1");
    expect_abort(error_of([&] {
      backend.split({1, 2}, 0, "pair", test::call_of(OpKind::split, 1));
    }));
  });
  for (const std::optional<Error>& error : thrown) EXPECT_FALSE(error) << error->what();
  EXPECT_LT(Deadline::Clock::now() - begin, testing_support::kPatience);
}

TEST(NcclAbortTest, ReachesThePeersThatWait) {
  test::NcclJob job(2);
  job.host_wait = test::HostWait::yes;
  const auto thrown = job.run([&](Backend& backend) {
    test::Values values(4, 1);
    test::all_reduce(backend, test::buffer_of(values), test::buffer_of(values), ReduceOp::sum,
                     test::call_of(OpKind::all_reduce, 1));
    const Error error(ErrorCode::kAborted, "rank 1 has aborted group 'world': the loss is nan");
    if (backend.rank() == 1) {
      backend.abort(error);
      backend.abort(Error(ErrorCode::kAborted, "a second reason"));
    }
    test::all_reduce(backend, test::buffer_of(values), test::buffer_of(values), ReduceOp::sum,
                     test::call_of(OpKind::all_reduce, 2));
  });
  for (const std::optional<Error>& error : thrown) expect_abort(error);
  for (const std::string& violation : job.simulation.violations()) ADD_FAILURE() << violation;
  for (const int rank : {0, 1}) EXPECT_EQ(job.simulation.count(rank, "abort"), 1);
}

}  // namespace
}  // namespace dtrun::collectives
