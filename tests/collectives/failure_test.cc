// Ranks that die, stop, or leave: the others must say who and where, and never hang.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dtrun/base/log.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/promptness.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Deadline;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tensors::LocalTensor;
using test::RankProcesses;
using test::run_failing_ranks;
using test::Thrown;
using testing_support::contains;
using testing_support::error_of;
using Guard = RankProcesses::Guard;

/// How the ranks reach each other.
struct Reach {
  std::string name;
  Transport transport;
  int connections_per_peer = 1;
  std::vector<int> machines = {};
  /// Whether the two ranks share memory.
  bool shares_memory(int a, int b) const {
    if (transport == Transport::tcp) return false;
    int machine_of[2] = {}, last = 0;
    for (const int ranks : machines) {
      last += ranks;
      machine_of[0] += a >= last ? 1 : 0;
      machine_of[1] += b >= last ? 1 : 0;
    }
    return machine_of[0] == machine_of[1];
  }
};

class FailureTest : public testing::TestWithParam<Reach> {
 protected:
  test::RankOptions options(Deadline::Duration timeout = seconds(60)) const {
    return {.transport = GetParam().transport,
            .timeout = timeout,
            .machines = GetParam().machines,
            .connections_per_peer = GetParam().connections_per_peer};
  }
};

void all_reduce_without_end(const ProcessGroup& group, std::int64_t count) {
  const LocalTensor tensor = tensors::ones({count});
  for (;;) group.all_reduce(tensor);
}

TEST_P(FailureTest, AKilledRankIsNamedByEverySurvivor) {
  for (const std::int64_t count : {7, 1'000'000}) {
    RankProcesses ranks(4, options(), Guard::none, [count](const ProcessGroup& group) {
      if (group.rank() != 2) all_reduce_without_end(group, count);
      const LocalTensor tensor = tensors::ones({count});
      for (int i = 0; i < 5; ++i) group.all_reduce(tensor);
      ::raise(SIGKILL);
    });
    EXPECT_EQ(ranks.wait(2).status, SIGKILL);
    const auto death = Deadline::Clock::now();
    for (const int rank : {0, 1, 3}) {
      const RankProcesses::Ended ended = ranks.wait(rank);
      ASSERT_TRUE(ended.thrown.has_value());
      EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed);
      EXPECT_TRUE(ended.thrown->text.starts_with("rank 2 (pid ")) << ended.thrown->text;
      EXPECT_TRUE(contains(ended.thrown->text, "ended without leaving its groups"));
    }
    EXPECT_LT(Deadline::Clock::now() - death, testing_support::kPatience);
  }
}

TEST_P(FailureTest, WithAJobPageTheCauseIsTheGuards) {
  RankProcesses ranks(4, options(), Guard::job_page, [](const ProcessGroup& group) {
    if (group.rank() == 3) ::pause();
    group.all_reduce(tensors::ones({5}));
  });
  for (const int rank : {0, 1, 2}) ranks.await_operation(rank, 1);
  ranks.signal(2, SIGKILL);
  EXPECT_EQ(ranks.wait(2).status, SIGKILL);
  for (const int rank : {0, 1}) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    ASSERT_TRUE(ended.thrown.has_value());
    EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed);
    EXPECT_TRUE(contains(ended.thrown->text, ranks.job_page().describe_cause()))
        << ended.thrown->text;
    EXPECT_TRUE(contains(ended.thrown->text, "all_reduce #1 of group 'world'"))
        << ended.thrown->text;
    const rendezvous::RankSlot& slot = ranks.job_page().slot(rank);
    EXPECT_EQ(slot.victim_of.load(), 2);
    EXPECT_EQ(std::string(slot.ring[0].name), "all_reduce");
    EXPECT_EQ(std::string(slot.ring[0].group), "world");
    EXPECT_EQ(slot.ring[0].sequence, 1U);
    EXPECT_NE(slot.ring[0].ended_ns, 0);
  }
  // Its last operation stays readable.
  const auto last = ranks.job_page().history(2, 1);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].operation.ended_ns, 0);
}

TEST_P(FailureTest, ARankThatDiesInTheMiddleOfMuchDataIsNamed) {
  for (int round = 0; round < 10; ++round) {
    RankProcesses ranks(3, options(), Guard::job_page,
                        [](const ProcessGroup& group) { all_reduce_without_end(group, 300000); });
    ranks.await_operation(1, static_cast<std::uint64_t>(1 + 3 * round));
    ranks.signal(1, SIGKILL);
    EXPECT_EQ(ranks.wait(1).status, SIGKILL);
    for (const int rank : {0, 2}) {
      const RankProcesses::Ended ended = ranks.wait(rank);
      ASSERT_TRUE(ended.thrown.has_value());
      EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed) << ended.thrown->text;
      EXPECT_TRUE(contains(ended.thrown->text, "rank 1 ")) << ended.thrown->text;
    }
  }
}

constexpr std::int64_t kMuch = 8'000'000;  // more than a ring or a socket's buffers hold

/// A tensor that kills who writes to it.
LocalTensor deadly_tensor() {
  ::signal(SIGSEGV, SIG_DFL);  // the sanitizers have a handler
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return tensors::from_blob(memory, {1});
}

// The peer has come already, so the rank takes what it gets at once, by the short way.
TEST(ShortCallFailureTest, ARankThatDiesInItHasNotEndedIt) {
  using Call = std::function<void(const ProcessGroup&, const LocalTensor&)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"all_reduce",
       [](const ProcessGroup& group, const LocalTensor& target) {
         group.all_reduce_into_tensor(target, tensors::ones({1}));
       }},
      {"scatter", [](const ProcessGroup& group, const LocalTensor& target) {
         const LocalTensor one = tensors::ones({1});
         group.scatter(target,
                       group.rank() == 0 ? std::vector{one, one} : std::vector<LocalTensor>{}, 0);
       }}};
  for (const auto& [name, call] : calls) {
    const base::Pipe pipe = base::make_pipe();
    RankProcesses ranks(2, {}, Guard::job_page, [&](const ProcessGroup& group) {
      // The first call of a kind makes the channels.
      for (int i = 0; i < 2; ++i) call(group, tensors::zeros({1}));
      group.barrier();
      char word = 0;
      if (group.rank() == 1 && ::read(pipe.read_end.get(), &word, 1) != 1) ::_exit(1);
      call(group, group.rank() == 1 ? deadly_tensor() : tensors::zeros({1}));
      group.barrier();
    });
    ranks.await_operation(0, 4);
    ASSERT_EQ(::write(pipe.write_end.get(), "x", 1), 1);
    EXPECT_EQ(WTERMSIG(ranks.wait(1).status), SIGSEGV);
    const rendezvous::HistoryEntry last = ranks.job_page().history(1).back();
    EXPECT_EQ(std::string(last.operation.name), name);
    EXPECT_EQ(last.operation.ended_ns, 0) << name;
    EXPECT_TRUE(contains(ranks.job_page().describe_cause(), "in " + name + " #"))
        << ranks.job_page().describe_cause();
    EXPECT_TRUE(ranks.wait(0).thrown.has_value());
  }
}

/// Several, so that a sender knows whether its memory can be read.
void move_much(const ProcessGroup& group, const LocalTensor& tensor, int times) {
  for (int i = 0; i < times; ++i) {
    if (group.rank() == 0) {
      group.send(tensor, 1);
    } else {
      group.recv(tensor, 0);
    }
  }
}

TEST_P(FailureTest, ARankThatDiesInALargeMessageIsNamedByTheOtherSide) {
  for (const int victim : {0, 1}) {
    RankProcesses ranks(2, options(), Guard::job_page, [&](const ProcessGroup& group) {
      const LocalTensor tensor = tensors::ones({kMuch});
      move_much(group, tensor, 3);
      if (group.rank() == victim) ::pause();
      move_much(group, tensor, 1);
    });
    ranks.await_operation(1 - victim, 4);
    ranks.signal(victim, SIGKILL);
    EXPECT_EQ(ranks.wait(victim).status, SIGKILL);
    const RankProcesses::Ended ended = ranks.wait(1 - victim);
    ASSERT_TRUE(ended.thrown.has_value());
    EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed) << ended.thrown->text;
    EXPECT_TRUE(contains(ended.thrown->text, "rank " + std::to_string(victim)))
        << ended.thrown->text;
  }
}

TEST_P(FailureTest, ALargeMessageOfARankThatHasDiedIsNotReceived) {
  RankProcesses ranks(2, options(), Guard::none, [](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::ones({kMuch});
    move_much(group, tensor, 3);
    const LocalTensor pid = tensors::full({1}, ::getpid(), {.dtype = tensors::DType::i64});
    move_much(group, pid, 1);
    if (group.rank() == 0) {
      const Work work = group.isend(tensor, 1);
      ::raise(SIGKILL);
    }
    // Until the test has reaped it.
    while (::kill(static_cast<pid_t>(*static_cast<const std::int64_t*>(pid.data())), 0) == 0)
      ::sched_yield();
    move_much(group, tensor, 1);
  });
  EXPECT_EQ(ranks.wait(0).status, SIGKILL);
  const RankProcesses::Ended ended = ranks.wait(1);
  ASSERT_TRUE(ended.thrown.has_value());
  EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed) << ended.thrown->text;
  EXPECT_TRUE(contains(ended.thrown->text, "rank 0")) << ended.thrown->text;
}

TEST_P(FailureTest, ALargeMessageWhoseSenderGaveUpIsNotReceived) {
  std::promise<void> gave_up;
  const auto thrown = run_failing_ranks(2, options(), [&](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::ones({kMuch});
    move_much(group, tensor, 3);
    if (group.rank() == 1) {
      gave_up.get_future().wait();
      return move_much(group, tensor, 1);
    }
    const auto error = error_of([&] { group.send(tensor, 1, 0, {.timeout = milliseconds(50)}); });
    gave_up.set_value();
    ASSERT_TRUE(error.has_value());
    throw *error;
  });
  for (const auto& rank : thrown) {
    ASSERT_TRUE(rank.has_value());
    EXPECT_EQ(rank->code, ErrorCode::kTimeout) << rank->text;
  }
}

TEST_P(FailureTest, AStoppedRankIsNamedWithWhereItIs) {
  RankProcesses ranks(3, options(seconds(30)), Guard::job_page, [](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) group.recv(tensors::ones({1}), 0, 0);
    group.all_reduce(tensors::ones({7}), ReduceOp::sum, {.timeout = milliseconds(600)});
  });
  ranks.await_operation(1, 2);
  ranks.signal(1, SIGSTOP);
  for (const int rank : {0, 2}) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    ASSERT_TRUE(ended.thrown.has_value());
    EXPECT_EQ(ended.thrown->code, ErrorCode::kTimeout);
    EXPECT_TRUE(contains(ended.thrown->text, "in all_reduce #2 (f32 x 7, sum) at failure_test.cc:"))
        << ended.thrown->text;
    EXPECT_TRUE(contains(ended.thrown->text, "of group 'world' for rank 1")) << ended.thrown->text;
    EXPECT_TRUE(contains(ended.thrown->text, "rank 1 (pid " + std::to_string(ranks.pid(1))));
    // A stopped rank's board can be read on its machine; over TCP it does not answer. The first
    // that has waited for long enough tells the others.
    const int waited = ended.thrown->text.starts_with("rank 0 waited") ? 0 : 2;
    EXPECT_TRUE(contains(ended.thrown->text, GetParam().shares_memory(waited, 1)
                                                 ? "is in recv #1 (f32 x 1, peer "
                                                 : "is not answering"))
        << ended.thrown->text;
    EXPECT_EQ(ranks.job_page().slot(rank).victim_of.load(), 1);
  }
  ranks.signal(1, SIGCONT);
  const RankProcesses::Ended late = ranks.wait(1);
  ASSERT_TRUE(late.thrown.has_value());
  EXPECT_EQ(late.thrown->code, ErrorCode::kTimeout) << late.thrown->text;
}

// What the others have comes from ranks that wait for the absent one, too.
TEST(RoundsFailureTest, TheRankThatHasNotComeIsNamedAlsoByThoseItDoesNotSendTo) {
  constexpr int kAbsent = 5;
  using Call = std::function<void(const ProcessGroup&, const LocalTensor&)>;
  const CallOptions briefly{.timeout = milliseconds(700)};
  const std::vector<std::pair<std::string, Call>> calls = {
      {"all_reduce #2",
       [&](const ProcessGroup& group, const LocalTensor& tensor) {
         group.all_reduce(tensor, ReduceOp::sum, briefly);
       }},
      {"barrier #2",
       [&](const ProcessGroup& group, const LocalTensor&) { group.barrier(briefly); }},
      {"reduce #2",
       [&](const ProcessGroup& group, const LocalTensor& tensor) {
         group.reduce(tensor, 2, ReduceOp::sum, briefly);
       }},
      {"broadcast #2",
       [&](const ProcessGroup& group, const LocalTensor& tensor) {
         group.broadcast(tensor, kAbsent, briefly);
       }},
  };
  const std::vector<std::pair<int, test::RankOptions>> places = {
      {17, {.transport = Transport::tcp}}, {9, {.machines = {2, 1, 3}}}};
  for (const auto& [size, place] : places)
    for (const auto& [name, call] : calls) {
      const auto thrown = run_failing_ranks(size, place, [&call = call](const ProcessGroup& group) {
        group.barrier();
        if (group.rank() != kAbsent) call(group, tensors::ones({3}));
        // Whoever has nothing to wait for is here until the others give up.
        group.recv(tensors::zeros({1}), group.rank() == 0 ? 1 : 0);
      });
      for (const auto& rank : thrown) {
        ASSERT_TRUE(rank.has_value()) << name;
        EXPECT_EQ(rank->code, ErrorCode::kTimeout) << rank->text;
        EXPECT_TRUE(contains(rank->text, " in " + name)) << rank->text;
        EXPECT_TRUE(contains(rank->text, "of group 'world' for rank 5\n")) << rank->text;
        // It is in that, or has left it because of another rank's timeout.
        EXPECT_TRUE(contains(rank->text, " recv #1 (f32 x 1, peer 0)")) << rank->text;
      }
    }
}

// Whoever has done its part, and waits for something else by now, has come.
TEST(RoundsFailureTest, ARankThatHasGoneOnIsNotNamed) {
  const auto thrown = run_failing_ranks(5, {.machines = {1}}, [](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::ones({1});
    group.barrier();
    // Rank 0 hears from 1, which waits for 2, 3 and 4 on its machine.
    if (group.rank() == 0) group.recv(tensor, 2);
    if (group.rank() <= 2) group.reduce(tensor, 0, ReduceOp::sum, {.timeout = seconds(1)});
    if (group.rank() == 2) group.send(tensor, 0);
    group.recv(tensor, group.rank() == 0 ? 1 : 0);
  });
  ASSERT_TRUE(thrown[0].has_value());
  EXPECT_TRUE(contains(thrown[0]->text, "of group 'world' for ranks 3, 4\n")) << thrown[0]->text;
}

TEST(RoundsFailureTest, ARankThatComesAfterItWasAskedForIsNotNamed) {
  static std::promise<void> told;
  told = {};
  const std::future<void> is_told = told.get_future();
  base::log::set_levels("+collectives");
  base::log::set_writer([](const base::log::Line& line) {
    const std::string text(line.message);
    if (contains(text, "rank 0 waits in reduce #2") && contains(text, "rank 2 has not come"))
      told.set_value();
  });
  const auto thrown = run_failing_ranks(5, {.machines = {1}}, [&](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::ones({1});
    group.barrier();
    if (group.rank() == 2) {
      ASSERT_EQ(is_told.wait_for(seconds(20)), std::future_status::ready);
    }
    const CallOptions options{.timeout = seconds(group.rank() == 0 ? 2 : 60)};
    if (group.rank() <= 2) group.reduce(tensor, 0, ReduceOp::sum, options);
    group.recv(tensor, group.rank() == 0 ? 1 : 0);
  });
  base::log::set_writer(nullptr);
  base::log::set_levels("");
  ASSERT_TRUE(thrown[0].has_value());
  EXPECT_TRUE(contains(thrown[0]->text, "of group 'world' for ranks 3, 4\n")) << thrown[0]->text;
}

TEST_P(FailureTest, ExitingWithoutAGoodbyeIsAFailureToo) {
  RankProcesses ranks(2, options(), Guard::none, [](const ProcessGroup& group) {
    if (group.rank() == 1) ::_exit(0);
    group.barrier();
  });
  EXPECT_EQ(ranks.wait(1).status, 0);
  const RankProcesses::Ended ended = ranks.wait(0);
  ASSERT_TRUE(ended.thrown.has_value());
  EXPECT_EQ(ended.thrown->code, ErrorCode::kPeerFailed);
  EXPECT_TRUE(contains(ended.thrown->text, "rank 1 (pid ")) << ended.thrown->text;
  // Over TCP it may not have answered before it ended.
  if (GetParam().shares_memory(0, 1)) {
    EXPECT_TRUE(contains(ended.thrown->text, "it was in no collective yet")) << ended.thrown->text;
  }
}

TEST_P(FailureTest, ARankThatLeavesEarlyIsNamedByThoseWhoNeedIt) {
  const auto thrown = run_failing_ranks(3, options(), [](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() != 1) group.barrier();
  });
  EXPECT_FALSE(thrown[1].has_value());
  for (const std::size_t rank : {0, 2}) {
    ASSERT_TRUE(thrown[rank].has_value());
    EXPECT_EQ(thrown[rank]->code, ErrorCode::kPeerFailed);
    EXPECT_TRUE(contains(thrown[rank]->text, "has left group 'world'")) << thrown[rank]->text;
    EXPECT_TRUE(thrown[rank]->text.starts_with("rank 1 (pid")) << thrown[rank]->text;
  }
}

TEST_P(FailureTest, AReceiveFromAnybodyEndsWhenEverybodyHasLeft) {
  const auto thrown = run_failing_ranks(3, options(), [](const ProcessGroup& group) {
    if (group.rank() == 2) group.send(tensors::ones({1}), 0);
    if (group.rank() != 0) return;
    EXPECT_EQ(group.recv(tensors::ones({1}), -1), 2);
    group.recv(tensors::ones({1}), -1);
  });
  ASSERT_TRUE(thrown[0].has_value());
  EXPECT_EQ(thrown[0]->code, ErrorCode::kPeerFailed);
  EXPECT_TRUE(contains(thrown[0]->text, "has left group 'world'")) << thrown[0]->text;
}

TEST_P(FailureTest, WhatWasSentBeforeLeavingArrives) {
  test::run_ranks(2, options(), [](const ProcessGroup& group) {
    constexpr std::int64_t kCount = 300000;
    if (group.rank() == 0) {
      group.isend(tensors::full({kCount}, 1), 1, 1);
      group.isend(tensors::full({3}, 2), 1, 2);
      group.shutdown();
      EXPECT_THROW(group.barrier(), base::Error);
      return;
    }
    const LocalTensor small = tensors::zeros({3});
    group.recv(small, 0, 2);
    EXPECT_EQ(small.to_vector(), std::vector<double>(3, 2));
    const LocalTensor large = tensors::zeros({kCount});
    group.recv(large, 0, 1);
    EXPECT_EQ(tensors::sum(large).item(), kCount);
  });
}

TEST_P(FailureTest, CrossedOrderOnTwoGroupsShowsWhoWaitsForWhom) {
  const auto thrown = run_failing_ranks(2, options(), [](const ProcessGroup& group) {
    const ProcessGroup other = group.split({{0, 1}}, "other");
    const LocalTensor tensor = tensors::ones({4});
    if (group.rank() == 0) {
      group.all_reduce(tensor, ReduceOp::sum, {.timeout = milliseconds(400)});
    } else {
      other.all_reduce(tensor);
    }
  });
  ASSERT_TRUE(thrown[0] && thrown[1]);
  EXPECT_EQ(thrown[0]->code, ErrorCode::kTimeout);
  const std::string& text = thrown[0]->text;
  EXPECT_TRUE(text.starts_with("rank 0 waited ")) << text;
  EXPECT_TRUE(contains(text, "in all_reduce #2 (f32 x 4, sum) at failure_test.cc:")) << text;
  EXPECT_TRUE(contains(text, "of group 'world' for rank 1")) << text;
  EXPECT_TRUE(contains(text, "is in all_reduce #1 (f32 x 4, sum) at failure_test.cc:")) << text;
  EXPECT_TRUE(contains(text, ", waiting for rank 0")) << text;
  EXPECT_EQ(thrown[1]->code, ErrorCode::kPeerFailed) << thrown[1]->text;
}

constexpr int kCallsOfAChild = 7;

/// How many of a forked child's calls are refused because it is one.
int count_refused(const ProcessGroup& group, const ProcessGroup& pair, const Work& in_flight) {
  int refused = 0;
  const std::function<void()> calls[kCallsOfAChild] = {
      [&] { group.barrier(); },
      [&] { group.all_reduce(tensors::ones({1000}), ReduceOp::sum, {.async = true}); },
      [&] { group.send(tensors::ones({1}), 1 - group.rank()); },
      [&] { group.recv(tensors::ones({1}), 1 - group.rank()); },
      [&] {
        group.split({{0, 1}}, "child's");
      },
      [&] { in_flight.wait(); },
      [&] { static_cast<void>(in_flight.is_completed()); }};
  for (const std::function<void()>& call : calls) {
    try {
      call();
    } catch (const base::Error& error) {
      refused += error.code() == ErrorCode::kUsage ? 1 : 0;
    }
  }
  try {
    group.broadcast(LocalTensor(), 0);
  } catch (const base::Error&) {
    // Wrong arguments are told to the peers, but not by a child: they go on.
  }
  { const ProcessGroup dies = pair; }
  group.shutdown();
  return refused;
}

TEST_P(FailureTest, AForkedChildMayNeitherUseTheGroupNorHarmIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "another thread may hold a lock of the sanitizer's at the fork: the child then "
                  "waits for ever";
#endif
  RankProcesses ranks(2, options(), Guard::none, [](const ProcessGroup& group) {
    {
      const ProcessGroup pair = group.split({{0, 1}}, "pair");
      pair.all_reduce(tensors::ones({1}), ReduceOp::sum, {.async = true}).wait();
      const Work in_flight = pair.irecv(tensors::ones({1}), 1 - group.rank());
      const pid_t child = ::fork();
      if (child == 0) ::_exit(count_refused(group, pair, in_flight));
      int status = -1;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, W_EXITCODE(kCallsOfAChild, 0));
      pair.barrier();
      pair.send(tensors::ones({1}), 1 - group.rank());
      in_flight.wait();
    }
    group.barrier();
  });
  for (const int rank : {0, 1}) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    EXPECT_EQ(ended.status, 0);
    EXPECT_FALSE(ended.thrown.has_value()) << ended.thrown->text;
  }
}

TEST_P(FailureTest, AWaitMayEndBeforeItsOperation) {
  test::run_ranks(2, options(), [](const ProcessGroup& group) {
    if (group.rank() == 0) {
      const LocalTensor tensor = tensors::zeros({2});
      const Work work = group.irecv(tensor, 1);
      EXPECT_FALSE(work.is_completed());
      EXPECT_THROW(work.wait(Deadline::after(milliseconds(20))), base::Error);
      EXPECT_EQ(work.exception(), nullptr);
      group.barrier();
      work.wait();
      EXPECT_EQ(tensor.to_vector(), (std::vector<double>{1, 1}));
    } else {
      group.barrier();
      group.send(tensors::ones({2}), 0);
    }
  });
}

// The launcher may still tell why they ended: nobody waits for that who needs only the living.
TEST_P(FailureTest, RanksThatEndWithoutLeavingHoldUpNoOther) {
  constexpr int kMessages = 100;
  constexpr int kPauseMs = 3;  // the receiver is asleep by then
  RankProcesses ranks(6, options(), Guard::job_page, [](const ProcessGroup& group) {
    const ProcessGroup pair = group.split({{0, 1}, {2, 3, 4, 5}}, "pair");
    pair.barrier();
    group.barrier();
    if (group.rank() > 1) ::_exit(0);
    Deadline::Duration longest{};
    for (int message = 0; message < kMessages; ++message) {
      const auto begin = Deadline::Clock::now();
      if (group.rank() == 0) pair.recv(tensors::zeros({1}), 1);
      longest = std::max<Deadline::Duration>(longest, Deadline::Clock::now() - begin);
      if (group.rank() == 0) continue;
      ::poll(nullptr, 0, kPauseMs);
      pair.send(tensors::ones({1}), 0);
    }
    EXPECT_LT(longest, seconds(2));
  });
  for (int rank = 0; rank < 6; ++rank) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    EXPECT_EQ(ended.status, 0);
    EXPECT_FALSE(ended.thrown.has_value()) << ended.thrown->text;
  }
}

/// As a program does that closes what it does not know and opens something else.
int take_epoll_instances_away() {
  int taken = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    char target[64] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), target, sizeof target - 1) <= 0) continue;
    if (!contains(target, "[eventpoll]")) continue;
    const base::UniqueFd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_EQ(::dup2(other.get(), fd), fd);
    ++taken;
  }
  return taken;
}

TEST_P(FailureTest, ARankThatCannotWatchTheOthersFailsItsGroupsAndLives) {
  RankProcesses ranks(2, options(), Guard::none, [](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) group.recv(tensors::ones({1}), 0);
    EXPECT_GT(take_epoll_instances_away(), 0);
    for (int turn = 0; turn < 2; ++turn) {
      const std::optional<base::Error> error = error_of([&] { group.barrier(); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kSystem) << error->what();
      EXPECT_TRUE(contains(error->what(), "watch the other ranks")) << error->what();
    }
  });
  const RankProcesses::Ended ended = ranks.wait(0);
  EXPECT_EQ(ended.status, 0);
  EXPECT_FALSE(ended.thrown.has_value()) << ended.thrown->text;
  const RankProcesses::Ended other = ranks.wait(1);
  ASSERT_TRUE(other.thrown.has_value());
  EXPECT_EQ(other.thrown->code, ErrorCode::kPeerFailed) << other.thrown->text;
  EXPECT_TRUE(contains(other.thrown->text, "rank 0 (pid ")) << other.thrown->text;
}

INSTANTIATE_TEST_SUITE_P(Transports, FailureTest,
                         testing::Values(Reach{"Automatic", Transport::automatic},
                                         Reach{"Tcp", Transport::tcp},
                                         Reach{"TcpOnFourConnections", Transport::tcp, 4},
                                         Reach{"OneAndTheRest", Transport::automatic, 1, {1}},
                                         Reach{"TwoAndTheRest", Transport::automatic, 1, {2}}),
                         [](const auto& tested) { return tested.param.name; });

struct Connections {
  int all = 0;
  int watched = 0;  ///< notice a silent peer after 30 to 60 s
};

Connections tcp_connections() {
  Connections found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    ++found.all;
    int keepalive = 0, unacknowledged = 0;
    size = sizeof keepalive;
    ::getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &keepalive, &size);
    ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, &size);
    if (keepalive == 1 && unacknowledged >= 30000 && unacknowledged <= 60000) ++found.watched;
  }
  return found;
}

// A host that is cut off, or loses its power, closes no connection.
TEST(SilentHostTest, EveryTcpConnectionOfAGroupNoticesOne) {
  test::RankOptions options;
  options.transport = Transport::tcp;
  options.timeout = seconds(30);
  test::run_ranks(2, options, [](const ProcessGroup& group) {
    group.all_reduce(tensors::ones({1}));
    if (group.rank() == 0) {
      // Of data and of control, both ends of each. One that was accepted this moment is told next.
      constexpr int kEnds = 4;
      const auto until = std::chrono::steady_clock::now() + seconds(10);
      Connections found = tcp_connections();
      while ((found.all < kEnds || found.watched < found.all) &&
             std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
        found = tcp_connections();
      }
      EXPECT_GE(found.all, kEnds);
      EXPECT_EQ(found.watched, found.all);
    }
    group.barrier();
  });
}

}  // namespace
}  // namespace dtrun::collectives
