// Short calls in which a rank needs nothing of the others: it goes on at once, and may be many
// calls ahead of them. What it has shown must stay until all have read it, and what goes wrong
// meanwhile must be told as in a call in which all wait.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/payload_ring.h"
#include "cpu/post.h"
#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/job_page.h"
#include "dtrun/tensor/ops.h"
#include "support/flat_tensors.h"
#include "support/promptness.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::ErrorCode;
using cpu::kAhead;
using tensors::DType;
using tensors::LocalTensor;
using test::flat_full;
using test::flat_ones;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::contains;
using testing_support::error_of;
using Numbers = std::vector<double>;

/// One rank opens it for the others. Whoever waits in vain fails the test and goes on.
class Gate {
 public:
  void open() { opened_.set_value(); }
  void pass() const {
    ASSERT_EQ(open_.wait_for(testing_support::kPatience * 6), std::future_status::ready)
        << "the rank that opens the gate waits for one behind it";
  }

 private:
  std::promise<void> opened_;
  const std::shared_future<void> open_ = opened_.get_future().share();
};

/// A kind of call in which some ranks need nothing of others.
struct Kind {
  const char* name;
  bool root_gives;  ///< else the others do
  /// @param number of the call, from which all that it moves follows
  void (*call)(const ProcessGroup& group, int root, std::int64_t count, int number);
};

/// How many calls with so many elements a rank may be ahead, whichever way they go.
int most_ahead(std::int64_t count, int ranks) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  if (bytes <= cpu::Post::kInline) return static_cast<int>(kAhead);
  // A payload begins on a cache line, and one may leave the end of the ring empty.
  const std::size_t payloads =
      payload_area_bytes(static_cast<std::size_t>(ranks)) / (bytes + 63) - 1;
  return static_cast<int>(std::min<std::size_t>(kAhead, payloads));
}

double value_of(int number, int rank) {
  return static_cast<double>(number % 1000 * 16 + rank % 16);
}

std::vector<LocalTensor> parts_of(const ProcessGroup& group, std::int64_t count, int number) {
  std::vector<LocalTensor> parts;
  for (int rank = 0; rank < group.size(); ++rank)
    parts.push_back(flat_full(count, number < 0 ? 0 : value_of(number, rank)));
  return parts;
}

bool has_only(const LocalTensor& tensor, double value) {
  return equal(tensor, flat_full(tensor.numel(), value));
}

void broadcast(const ProcessGroup& group, int root, std::int64_t count, int number) {
  const LocalTensor tensor = flat_full(count, group.rank() == root ? value_of(number, root) : 0);
  group.broadcast(tensor, root);
  EXPECT_TRUE(has_only(tensor, value_of(number, root))) << "broadcast " << number;
}

void reduce(const ProcessGroup& group, int root, std::int64_t count, int number) {
  const LocalTensor tensor = flat_full(count, value_of(number, group.rank()));
  group.reduce(tensor, root);
  double sum = 0;
  for (int rank = 0; rank < group.size(); ++rank) sum += value_of(number, rank);
  const double wanted = group.rank() == root ? sum : value_of(number, group.rank());
  EXPECT_TRUE(has_only(tensor, wanted)) << "reduce " << number;
}

void gather(const ProcessGroup& group, int root, std::int64_t count, int number) {
  const bool is_root = group.rank() == root;
  const auto parts = is_root ? parts_of(group, count, -1) : std::vector<LocalTensor>();
  group.gather(flat_full(count, value_of(number, group.rank())), parts, root);
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    EXPECT_TRUE(has_only(parts[rank], value_of(number, static_cast<int>(rank))))
        << "gather " << number;
}

void scatter(const ProcessGroup& group, int root, std::int64_t count, int number) {
  const bool is_root = group.rank() == root;
  const LocalTensor own = flat_full(count, 0);
  group.scatter(own, is_root ? parts_of(group, count, number) : std::vector<LocalTensor>(), root);
  EXPECT_TRUE(has_only(own, value_of(number, group.rank()))) << "scatter " << number;
}

constexpr Kind kKinds[] = {{"Broadcast", true, broadcast},
                           {"Reduce", false, reduce},
                           {"Gather", false, gather},
                           {"Scatter", true, scatter}};

struct Ahead {
  Kind kind;
  int size;
};

class RunAheadTest : public testing::TestWithParam<Ahead> {
 protected:
  static bool gives(const ProcessGroup& group, int root) {
    return (group.rank() == root) == GetParam().kind.root_gives;
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, RunAheadTest, testing::ValuesIn([] {
                           std::vector<Ahead> all;
                           for (const Kind& kind : kKinds)
                             for (const int size : {2, 3, 5}) all.push_back({kind, size});
                           return all;
                         }()),
                         [](const auto& tested) {
                           return tested.param.kind.name + std::to_string(tested.param.size);
                         });

TEST_P(RunAheadTest, WhoGivesGoesOnBeforeTheOthersHaveCome) {
  const auto [kind, size] = GetParam();
  for (const std::int64_t count : {0, 1, 2, 6, 7, 100, 512, 4096, 4097, 16384}) {
    std::vector<Gate> given(static_cast<std::size_t>(size));
    run_ranks(size, [&, call = kind.call](const ProcessGroup& group) {
      // The first calls of a kind make the channels and places of what is long.
      for (int number = 0; number < 3; ++number) call(group, 0, 1, number);
      group.barrier();
      const bool is_giver = gives(group, 0);
      for (int rank = 0; !is_giver && rank < size; ++rank)
        if ((rank == 0) == GetParam().kind.root_gives) given[static_cast<std::size_t>(rank)].pass();
      for (int number = 0; number < most_ahead(count, group.size()); ++number)
        call(group, 0, count, number);
      if (is_giver) given[static_cast<std::size_t>(group.rank())].open();
      for (int number = 0; number < 100; ++number) call(group, 0, count, number);
      group.barrier();
    });
  }
}

TEST_P(RunAheadTest, WhatWasGivenBeforeLeavingIsRead) {
  const auto [kind, size] = GetParam();
  std::vector<Gate> left(static_cast<std::size_t>(size));
  const auto thrown = run_failing_ranks(size, {}, [&, call = kind.call](const ProcessGroup& group) {
    for (int number = 0; number < 3; ++number) call(group, 0, 1, number);
    group.barrier();
    const bool is_giver = gives(group, 0);
    for (int rank = 0; !is_giver && rank < size; ++rank)
      if ((rank == 0) == GetParam().kind.root_gives) left[static_cast<std::size_t>(rank)].pass();
    for (int number = 0; number < 10; ++number) call(group, 0, 100, number);
    if (is_giver) {
      group.shutdown();
      left[static_cast<std::size_t>(group.rank())].open();
    } else {
      call(group, 0, 100, 10);
    }
  });
  for (int rank = 0; rank < size; ++rank) {
    const bool is_giver = (rank == 0) == kind.root_gives;
    const auto& mine = thrown[static_cast<std::size_t>(rank)];
    ASSERT_EQ(mine.has_value(), !is_giver) << (mine ? mine->text : "");
    if (is_giver) continue;
    EXPECT_EQ(mine->code, ErrorCode::kPeerFailed) << mine->text;
    EXPECT_TRUE(contains(mine->text, "has left group 'world'")) << mine->text;
  }
}

TEST_P(RunAheadTest, AKilledRankIsNamedByThoseWhoAreAheadAndBehind) {
  const auto [kind, size] = GetParam();
  // Of the longer ones a piece may be there, and the next one not.
  for (const auto& [victim, count] :
       {std::pair{0, 3}, {size - 1, 3}, {0, 16384}, {size - 1, 16384}}) {
    test::RankProcesses ranks(size, {}, test::RankProcesses::Guard::job_page,
                              [call = kind.call, count = count](const ProcessGroup& group) {
                                for (int number = 0;; ++number) call(group, 0, count, number);
                              });
    const auto begun = [&] { return ranks.job_page().slot(victim).operations.load(); };
    while (begun() < 50) ::sched_yield();
    ranks.signal(victim, SIGKILL);
    EXPECT_EQ(ranks.wait(victim).status, SIGKILL);
    const std::string name = "rank " + std::to_string(victim) + " ";
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const auto ended = ranks.wait(rank);
      ASSERT_TRUE(ended.thrown.has_value());
      EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed) << ended.thrown->text;
      EXPECT_TRUE(contains(ended.thrown->text, name)) << ended.thrown->text;
    }
  }
}

TEST(RunAheadLimitTest, ARootWaitsForWhoIsFarBehindAndATimeoutNamesIt) {
  for (const std::int64_t count : {1, 100}) {
    Gate given_up;
    const auto thrown = run_failing_ranks(3, {}, [&](const ProcessGroup& group) {
      group.barrier();
      if (group.rank() == 2) given_up.pass();
      const LocalTensor tensor = flat_ones(count);
      int calls = 0;
      const auto error = error_of([&] {
        // The root's time is over first: rank 1 would name the root, which waits for rank 2.
        const auto timeout = std::chrono::milliseconds(group.rank() == 0 ? 400 : 30000);
        for (;; ++calls) group.broadcast(tensor, 0, {.timeout = timeout});
      });
      if (group.rank() == 0) {
        EXPECT_EQ(calls, static_cast<int>(kAhead));
        given_up.open();
      }
      throw *error;
    });
    const std::string root = thrown[0]->text;
    EXPECT_EQ(thrown[0]->code, ErrorCode::kTimeout) << root;
    EXPECT_TRUE(contains(root, "broadcast #" + std::to_string(kAhead + 2))) << root;
    EXPECT_TRUE(contains(root, "for rank 2")) << root;
    EXPECT_TRUE(contains(root, "in no collective")) << root;
    for (const int rank : {1, 2})
      EXPECT_EQ(thrown[static_cast<std::size_t>(rank)]->code, ErrorCode::kTimeout)
          << thrown[static_cast<std::size_t>(rank)]->text;
  }
}

/// A slow rank that comes on is waited for one call at a time: the timeout is a call's.
TEST(RunAheadLimitTest, ASlowReaderIsNoReasonToGiveUp) {
  constexpr auto kStep = std::chrono::milliseconds(25);
  constexpr auto kTimeout = std::chrono::milliseconds(600);
  constexpr int kCalls = static_cast<int>(kAhead) + 10;
  static_assert(kStep * static_cast<int>(kAhead) / 2 > kTimeout && 10 * kStep < kTimeout);
  for (const std::int64_t count : {1, 100}) {
    Gate full;
    run_ranks(3, [&](const ProcessGroup& group) {
      group.barrier();
      const LocalTensor tensor = flat_ones(count);
      const bool is_slow = group.rank() == 2;
      if (is_slow) full.pass();
      for (int number = 0; number < kCalls; ++number) {
        // It computes between the calls, until it has read more than half of what was written.
        const bool computes = is_slow && number < static_cast<int>(kAhead) / 2 + 4;
        for (const auto end = base::Deadline::after(kStep); computes && !end.expired();)
          ::sched_yield();
        if (group.rank() == 0 && number == static_cast<int>(kAhead)) full.open();
        const auto timeout = group.rank() == 0 ? kTimeout : 100 * kTimeout;
        group.broadcast(tensor, 0, {.timeout = timeout});
      }
    });
  }
}

TEST(RunAheadLimitTest, PayloadsStayUntilTheyAreRead) {
  // So large that fewer than kAhead of them find room.
  run_ranks(3, [](const ProcessGroup& group) {
    std::mt19937 random(5), pace(static_cast<unsigned>(group.rank()));
    for (int number = 0; number < 1000; ++number) {
      const auto count = static_cast<std::int64_t>(random() % (number % 4 == 0 ? 16400 : 4099));
      const int root = static_cast<int>(random() % 3);
      for (unsigned rest = pace() % 8 == 0 ? pace() % 50 : 0; rest > 0; --rest) ::sched_yield();
      (random() % 2 == 0 ? broadcast : reduce)(group, root, count, number);
    }
  });
}

class RunAheadMixTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, RunAheadMixTest,
                         testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 40));

/// Calls of all kinds in an order that all know, some of which end later.
TEST_P(RunAheadMixTest, EveryCallGetsItsOwn) {
  const int size = GetParam();
  const int calls = size > 9 ? 150 : 1500;
  run_ranks(size, [size, calls](const ProcessGroup& group) {
    std::mt19937 random(static_cast<unsigned>(size)), pace(static_cast<unsigned>(group.rank()));
    struct Later {
      Work work;
      LocalTensor tensor;
      double wanted;
    };
    std::vector<Later> later;
    for (int number = 0; number < calls; ++number) {
      const int root = static_cast<int>(random() % static_cast<unsigned>(size));
      const auto count =
          static_cast<std::int64_t>(random() % 6 == 0 ? random() % 4200 : random() % 9);
      const unsigned kind = random() % 40;
      for (unsigned rest = pace() % 16 == 0 ? pace() % 30 : 0; rest > 0; --rest) ::sched_yield();
      if (kind < 36) {
        kKinds[kind % 4].call(group, root, count, number);
      } else if (kind == 36) {
        const LocalTensor tensor = flat_ones(count);
        group.all_reduce(tensor);
        EXPECT_TRUE(has_only(tensor, size));
      } else if (kind == 37) {
        group.barrier();
      } else {
        const LocalTensor tensor = flat_full(count, group.rank() == root ? number : 0);
        const Work work = group.broadcast(tensor, root, {.async = true});
        later.push_back({work, tensor, static_cast<double>(number)});
      }
    }
    for (const Later& call : later) {
      call.work.wait();
      EXPECT_TRUE(has_only(call.tensor, call.wanted));
    }
  });
}

// Turns begin shortly before the end of their numbers: rank 0 is ahead of it, rank 1 behind.
TEST(RunAheadNumbersTest, TurnsGoAroundWhileOneIsAhead) {
  constexpr int kUntilEnd = static_cast<int>(0U - cpu::kFirstTurn);
  constexpr int kBehind = kUntilEnd - static_cast<int>(kAhead) / 2;
  Gate around;
  run_ranks(2, [&](const ProcessGroup& group) {
    for (int number = 0; number < kBehind; ++number) broadcast(group, 0, number % 9, number);
    if (group.rank() == 1) around.pass();
    for (int number = 0; number < static_cast<int>(kAhead); ++number)
      broadcast(group, 0, number % 9, number);
    if (group.rank() == 0) around.open();
    for (int number = 0; number < 500; ++number) broadcast(group, 0, number % 9, number);
    for (int number = 0; number < 500; ++number) reduce(group, 0, number % 9, number);
  });
}

// ---- calls that differ

using Calls = std::function<void(const ProcessGroup& group, int number)>;

/// Calls of rank 0 and of rank 1, of which the number `odd` differs. Each goes on where it can.
void expect_both_are_told(int odd, const Calls& even, const Calls& other, const std::string& of_0,
                          const std::string& of_1) {
  const auto thrown = run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
    for (int number = 1; number <= static_cast<int>(kAhead) + 10; ++number)
      (group.rank() == 1 && number == odd ? other : even)(group, number);
    group.barrier();
  });
  for (const auto& mine : thrown) {
    ASSERT_TRUE(mine.has_value()) << of_0;
    EXPECT_EQ(mine->code, ErrorCode::kDisagreement) << mine->text;
    const std::string number = " #" + std::to_string(odd) + " ";
    EXPECT_TRUE(contains(mine->text, "rank 0 called " + of_0 + number)) << mine->text;
    EXPECT_TRUE(contains(mine->text, "rank 1 called " + of_1 + number)) << mine->text;
    EXPECT_TRUE(contains(mine->text, "run_ahead_test.cc:")) << mine->text;
  }
}

TEST(RunAheadDisagreementTest, OneCallThatDiffersIsNamedAtEveryDepth) {
  const Calls gives = [](const ProcessGroup& g, int) { g.broadcast(flat_ones(2), 0); };
  const Calls takes = [](const ProcessGroup& g, int) { g.reduce(flat_ones(2), 0); };
  constexpr int kLast = static_cast<int>(kAhead);
  for (const int odd : {1, 2, 7, kLast - 1, kLast, kLast + 1, kLast + 10}) {
    expect_both_are_told(
        odd, gives, [](const ProcessGroup& g, int) { g.broadcast(flat_ones(3), 0); }, "broadcast",
        "broadcast");
    expect_both_are_told(
        odd, gives, [](const ProcessGroup& g, int) { g.broadcast(flat_ones(2), 1); }, "broadcast",
        "broadcast");
    // Neither rank needs anything in that call.
    expect_both_are_told(odd, gives, takes, "broadcast", "reduce");
    expect_both_are_told(
        odd, takes, [](const ProcessGroup& g, int) { g.reduce(flat_ones(2, DType::i32), 0); },
        "reduce", "reduce");
    expect_both_are_told(
        odd, takes, [](const ProcessGroup& g, int) { g.reduce(flat_ones(2), 0, ReduceOp::max); },
        "reduce", "reduce");
    expect_both_are_told(
        odd, gives, [](const ProcessGroup& g, int) { g.gather(flat_ones(2), {}, 0); }, "broadcast",
        "gather");
    expect_both_are_told(
        odd, gives, [](const ProcessGroup& g, int) { g.barrier(); }, "broadcast", "barrier");
  }
}

TEST(RunAheadDisagreementTest, WhoCalledSomethingElseAndComesNoMoreIsCompared) {
  enum class Then { wait, leave };
  for (const Then then : {Then::wait, Then::leave}) {
    Gate told;
    const auto thrown = run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
      if (group.rank() == 1) {
        group.reduce(flat_ones(2), 0);
        if (then == Then::leave) group.shutdown();
        if (then == Then::wait) told.pass();
        return;
      }
      group.broadcast(flat_ones(2), 0);
      const auto error = error_of([&] { group.barrier(); });
      told.open();
      throw *error;
    });
    ASSERT_TRUE(thrown[0].has_value());
    EXPECT_EQ(thrown[0]->code, ErrorCode::kDisagreement) << thrown[0]->text;
    EXPECT_TRUE(contains(thrown[0]->text, "rank 1 called reduce #1 ")) << thrown[0]->text;
  }
}

// ---- the other ends of a group

TEST(RunAheadEndTest, AGroupIsSplitAndLeftWithCallsUnread) {
  for (int round = 0; round < 20; ++round)
    run_ranks(3, [](const ProcessGroup& group) {
      for (int number = 0; number < 5; ++number) broadcast(group, 0, 50, number);
      const ProcessGroup twin = group.split({{0, 1, 2}}, "twin");
      for (int number = 0; number < 12; ++number) broadcast(twin, 2, 50, number);
      for (int number = 0; number < 12; ++number) reduce(group, 1, 50, number);
    });
}

TEST(RunAheadEndTest, AnAbortReachesWhoIsBehind) {
  Gate aborted;
  run_ranks(2, [&](const ProcessGroup& group) {
    if (group.rank() == 1) {
      aborted.pass();
      const auto error = error_of([&] { group.broadcast(flat_ones(1), 0); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kAborted) << error->what();
      return;
    }
    for (int number = 0; number < 10; ++number) group.broadcast(flat_ones(1), 0);
    group.abort("enough");
    aborted.open();
  });
}

// For the rank that has gone on, its call is over.
TEST(RunAheadRecordTest, ACallThatNeedsNobodyHasEnded) {
  const auto page = test::page_of_ranks(2);
  Gate seen;
  run_ranks(2, {.job_page = page}, [&](const ProcessGroup& group) {
    if (group.rank() == 1) seen.pass();
    for (int number = 0; number < 5; ++number) group.broadcast(flat_ones(1), 0);
    if (group.rank() == 1) return;
    const rendezvous::RankSlot& slot = page->slot(0);
    EXPECT_EQ(slot.operations.load(), 5U);
    EXPECT_EQ(slot.passing.load(), 0U);
    seen.open();
  });
}

}  // namespace
}  // namespace dtrun::collectives
