// ProcessGroup::shrink: those that are left of a group make a new one, or all learn why not. Ranks
// that die are processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl_job.h"
#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/hash_store.h"
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
using std::chrono::milliseconds;
using std::chrono::seconds;
using tensors::LocalTensor;
using tensors::ones;
using test::RankProcesses;
using testing_support::contains;
using testing_support::error_of;
using Ranks = std::vector<int>;

/// The group works, and is of those ranks.
void expect_group(const ProcessGroup& group, const Ranks& global_ranks) {
  ASSERT_TRUE(group.valid());
  EXPECT_EQ(group.global_ranks(), global_ranks);
  for (const std::int64_t count : {1, 100000}) {
    const LocalTensor sum = ones({count});
    group.all_reduce(sum);
    EXPECT_EQ(sum.to_vector().back(), static_cast<double>(global_ranks.size()));
  }
}

/// That rank of the group dies while no other is in a call of the group.
void die_as(int dead, const ProcessGroup& group) {
  const LocalTensor word = ones({1});
  if (group.rank() != dead) return group.send(word, dead);
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != dead) group.recv(word, peer);
  ::raise(SIGKILL);
}

void expect_thrown(const std::optional<Error>& error, ErrorCode code, const std::string& text) {
  ASSERT_TRUE(error.has_value()) << text;
  EXPECT_EQ(error->code(), code) << error->what();
  EXPECT_TRUE(contains(error->what(), text)) << error->what();
}

class DeathTest : public testing::TestWithParam<std::string> {
 protected:
  static test::RankOptions options() {
    if (GetParam() == "tcp") return {.transport = Transport::tcp};
    if (GetParam() == "mixed") return {.machines = {2}};
    return {.backend = GetParam()};
  }
};

TEST_P(DeathTest, TheSurvivorsGoOn) {
  for (const int dead : {0, 2}) {
    RankProcesses ranks(
        4, options(), RankProcesses::Guard::none, [dead](const ProcessGroup& group) {
          Ranks left{0, 1, 2, 3};
          std::erase(left, dead);
          die_as(dead, group);
          expect_thrown(error_of([&] { group.barrier(); }), ErrorCode::kPeerFailed, "");
          const auto begin = Deadline::Clock::now();
          const ProcessGroup rest = group.shrink({.timeout = seconds(40)});
          // A death that is known is not waited for.
          EXPECT_LT(Deadline::Clock::now() - begin, testing_support::kPatience);
          EXPECT_EQ(rest.name(), "world-shrink-0");
          EXPECT_EQ(rest.timeout(), group.timeout());
          EXPECT_EQ(rest.backend_name(), group.backend_name());
          expect_group(rest, left);
          if (testing::Test::HasFailure()) throw Error(ErrorCode::kSystem, "see above");
        });
    for (const int rank : {0, 1, 2, 3}) {
      const RankProcesses::Ended ended = ranks.wait(rank);
      EXPECT_EQ(ended.status, rank == dead ? SIGKILL : 0);
      EXPECT_FALSE(ended.thrown.has_value()) << ended.thrown->text;
    }
  }
}

TEST_P(DeathTest, OneAfterTheOther) {
  RankProcesses ranks(4, options(), RankProcesses::Guard::none, [](const ProcessGroup& world) {
    ProcessGroup group = world;
    for (const int dead : {3, 1}) {
      die_as(dead, group);
      EXPECT_TRUE(error_of([&] { group.barrier(); }).has_value());
      group = group.shrink({.timeout = seconds(40)});
    }
    expect_group(group, {0, 2});
    if (testing::Test::HasFailure()) throw Error(ErrorCode::kSystem, "see above");
  });
  for (const int rank : {0, 2}) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    EXPECT_EQ(ended.status, 0);
    EXPECT_FALSE(ended.thrown.has_value()) << ended.thrown->text;
  }
}

INSTANTIATE_TEST_SUITE_P(Shrink, DeathTest, testing::ValuesIn([] {
                           std::vector<std::string> names{"cpu", "tcp", "mixed"};
                           if (is_backend_available("gloo")) names.emplace_back("gloo");
                           return names;
                         }()),
                         [](const auto& tested) { return tested.param; });

TEST(ShrinkTest, TheExcludedDoNotCall) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) return;
    const ProcessGroup rest = group.shrink({.excluded_ranks = {1}, .name = "rest"});
    EXPECT_EQ(rest.name(), "rest");
    expect_group(rest, {0, 2, 3});
    if (group.rank() == 3) return;
    // Again of the same group: who was left out then is not waited for.
    expect_group(group.shrink({.excluded_ranks = {3}}), {0, 2});
    // And of the new one, where rank 2 has the number 1.
    if (group.rank() == 0) expect_group(rest.shrink({.excluded_ranks = {1, 2}}), {0});
  });
}

TEST(ShrinkTest, TheRanksOfAnAbortedGroupComeTogetherAgain) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    group.barrier();
    const ProcessGroup pair = group.split({{0, 2}}, "pair");
    if (group.rank() == 1) return;
    if (pair.rank() == 1) pair.abort("try again");
    expect_thrown(error_of([&] { pair.barrier(); }), ErrorCode::kAborted, "try again");
    expect_group(pair.shrink(), {0, 2});
  });
}

TEST(ShrinkTest, TheNewGroupBlamesNobodyForWhatBefellTheOldOne) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::RankProcesses ranks(
        3, {.transport = transport}, RankProcesses::Guard::job_page, [](const ProcessGroup& group) {
          group.set_call_timing(CallTiming::all_calls);
          const LocalTensor word = ones({1});
          if (group.rank() != 0) group.send(word, 0);
          for (int peer = 1; group.rank() == 0 && peer < 3; ++peer) group.recv(word, peer);
          if (group.rank() == 0) group.abort("try again");
          expect_thrown(error_of([&] { group.barrier(); }), ErrorCode::kAborted, "try again");
          const ProcessGroup rest = group.shrink();
          rest.all_reduce(ones({1}));
          EXPECT_EQ(rest.call_counters().of(OpKind::all_reduce).timed, 1U);
          if (rest.rank() == 1) {
            for (const int peer : {0, 2}) rest.recv(word, peer);
            return rest.shutdown();
          }
          rest.send(word, 1);
          if (rest.rank() == 0) return;
          const std::optional<Error> error = error_of([&] { rest.recv(word, 1); });
          expect_thrown(error, ErrorCode::kPeerFailed, "rank 1");
          EXPECT_FALSE(contains(error->what(), "rank 0 failed")) << error->what();
          if (testing::Test::HasFailure()) throw Error(ErrorCode::kSystem, "see above");
        });
    for (const int rank : {0, 1, 2}) {
      const RankProcesses::Ended ended = ranks.wait(rank);
      EXPECT_EQ(ended.status, 0);
      EXPECT_FALSE(ended.thrown.has_value()) << ended.thrown->text;
    }
    EXPECT_EQ(ranks.job_page().slot(1).victim_of.load(), -1);
  }
}

TEST(ShrinkTest, WhoComesTooLateIsLeftOutAndToldSo) {
  std::promise<void> made;
  std::shared_future<void> is_made = made.get_future().share();
  test::run_ranks(3, [&](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 2) {
      is_made.wait();
      for (int turn = 0; turn < 2; ++turn)
        expect_thrown(error_of([&] { group.shrink(); }), ErrorCode::kAborted,
                      "group 'world' was shrunk to ranks 0, 1, and rank 2 is not among them");
      return group.abort();
    }
    const ProcessGroup rest = group.shrink({.timeout = milliseconds(300)});
    expect_group(rest, {0, 1});
    if (group.rank() == 0) made.set_value();
    // The old group is there until the late one has had its answer.
    EXPECT_TRUE(error_of([&] { group.recv(ones({1}), 2); }).has_value());
  });
}

TEST(ShrinkTest, ARankThatIsNeededAndDoesNotComeIsNamedAndAllMayTryAgain) {
  std::promise<void> failed[2];
  test::run_ranks(4, [&](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 3) return;
    const ShrinkOptions options{.excluded_ranks = {3}, .timeout = milliseconds(300)};
    if (group.rank() == 2) {
      for (std::promise<void>& other : failed) other.get_future().wait();
    } else {
      expect_thrown(error_of([&] { group.shrink(options); }), ErrorCode::kTimeout,
                    "group 'world' cannot be shrunk without rank 3 alone: rank 2 did not come");
      failed[group.rank()].set_value();
    }
    expect_group(group.shrink({.excluded_ranks = {3}}), {0, 1, 2});
  });
}

TEST(ShrinkTest, ARankThatIsNeededAndHasEndedIsNamedAtOnce) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() != 0) return;
    const auto begin = Deadline::Clock::now();
    expect_thrown(error_of([&] { group.shrink({.excluded_ranks = {2}}); }), ErrorCode::kPeerFailed,
                  "rank 1 has ended");
    EXPECT_LT(Deadline::Clock::now() - begin, testing_support::kPatience);
    expect_group(group.shrink(), {0});
  });
}

TEST(ShrinkTest, ThoseWhoLeaveOutDifferentRanksDisagree) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    group.barrier();
    const Ranks excluded = group.rank() == 1 ? Ranks{} : Ranks{2};
    if (group.rank() == 2) return;
    expect_thrown(error_of([&] { group.shrink({.excluded_ranks = excluded}); }),
                  ErrorCode::kDisagreement, "ranks disagree about shrinking group 'world'");
    expect_group(group.shrink({.excluded_ranks = {2}}), {0, 1});
  });
}

/// Three ranks. Rank 1 is played by hand: it has come to the first attempt when `body` begins.
void run_where_rank_1_comes(const std::shared_ptr<rendezvous::Store>& store,
                            const test::RankBody& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      const auto group = ProcessGroup::create(test::group_options(store, rank, 3));
      group.barrier();
      if (rank == 1) {
        store->compare_set("shrink/0/excluded", "", "nobody in particular");
        store->set("shrink/0/here/1", "1");
      }
      body(group);
    });
  for (std::thread& thread : threads) thread.join();
}

// Rank 1 comes, and dies before the new group is there.
TEST(ShrinkTest, ADeathInTheMiddleFailsTheAttemptAndTheNextOneGoesWell) {
  const std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
  run_where_rank_1_comes(store, [&](const ProcessGroup& group) {
    if (group.rank() == 1) {
      store->get("shrink/0/members");
      return;
    }
    expect_thrown(error_of([&] { group.shrink({.timeout = milliseconds(500)}); }),
                  ErrorCode::kPeerFailed, "group 'world' could not be shrunk: ");
    expect_group(group.shrink(), {0, 2});
  });
}

/// How long rank 0's shrink takes where rank 1 comes, and then does nothing more, and rank 2 does
/// not come.
Deadline::Duration time_of_a_shrink_in_vain(Deadline::Duration timeout) {
  std::promise<void> tried;
  const std::shared_future<void> is_tried = tried.get_future().share();
  Deadline::Duration took{};
  run_where_rank_1_comes(rendezvous::make_hash_store(), [&](const ProcessGroup& group) {
    if (group.rank() != 0) return is_tried.wait();
    const auto begin = Deadline::Clock::now();
    expect_thrown(error_of([&] { group.shrink({.timeout = timeout}); }), ErrorCode::kPeerFailed,
                  "group 'world' could not be shrunk: ");
    took = Deadline::Clock::now() - begin;
    tried.set_value();
  });
  return took;
}

TEST(ShrinkTest, OneTimeoutBoundsAllItsWaits) {
  constexpr seconds kTimeout{2};
  testing_support::expect_promptness(1.5 * kTimeout,
                                     [&] { return time_of_a_shrink_in_vain(kTimeout); });
}

// What an earlier call has left in the store is written by hand.
TEST(ShrinkTest, WhoLeftAnAttemptAfterItsBackendsWereMadeCannotComeAgain) {
  for (const std::string verdict : {"made", ""}) {
    const std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
    const auto group = ProcessGroup::create(test::group_options(store, 0, 1));
    store->set("shrink/0/members", "0");
    store->set("shrink/0/made/0", "1");
    if (!verdict.empty()) store->set("shrink/0/verdict", verdict);
    const std::optional<Error> error = error_of([&] { group.shrink(); });
    if (!verdict.empty()) {
      expect_thrown(error, ErrorCode::kAborted, "was shrunk, and has gone on without rank 0");
    } else {
      expect_thrown(error, ErrorCode::kPeerFailed, "rank 0 left an attempt, and came again");
      expect_group(group.shrink(), {0});
    }
  }
}

TEST(ShrinkTest, WhatMakesNoSenseIsRefusedBeforeAnybodyHearsOfIt) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const auto refuses = [&](ShrinkOptions options, const std::string& text) {
      expect_thrown(error_of([&] { group.shrink(options); }), ErrorCode::kInvalidArgument, text);
    };
    const int other = 1 - group.rank();
    refuses({.excluded_ranks = {2}}, "a rank to leave out is 2");
    refuses({.excluded_ranks = {other, other}}, "named twice");
    refuses({.excluded_ranks = {group.rank()}}, "is to be left out of group 'world', and calls");
    refuses({.timeout = milliseconds(0)}, "the timeout of shrink is 0 s");
    expect_group(group, {0, 1});
    group.shutdown();
    expect_thrown(error_of([&] { group.shrink(); }), ErrorCode::kAborted,
                  "shrink in group 'world', which rank");
  });
  test::NcclJob job(1);
  job.tensors_of = tensors::DeviceType::cpu;
  GroupOptions options = test::group_options(nullptr, 0, 1);
  const ProcessGroup without_store = ProcessGroup::over(std::move(options), job.backend(0));
  expect_thrown(error_of([&] { without_store.shrink(); }), ErrorCode::kUnavailable,
                "without a store");
}

}  // namespace
}  // namespace dtrun::collectives
