// Short collectives between ranks that have connections: they go on the caller's stack as long as
// the others come in time and the connections take all, and an operation does the rest.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/flat_tensors.h"
#include "support/rank_threads.h"

namespace dtrun::collectives {
namespace {

using std::chrono::milliseconds;
using tensors::LocalTensor;
using test::flat_full;
using Tensors = std::vector<LocalTensor>;

constexpr int kLateRanks = 4;

void work_until(std::chrono::steady_clock::time_point end) {
  while (std::chrono::steady_clock::now() < end) {
  }
}

double given_by(int call, int rank) {
  return call * 10 + rank + 1;
}

/// Of what the ranks give in that call.
double sum_given(int call) {
  double sum = 0;
  for (int rank = 0; rank < kLateRanks; ++rank) sum += given_by(call, rank);
  return sum;
}

/// Each kind in which the ranks combine. Elements do not fill cache lines.
void reduce_each_way(const ProcessGroup& group, int call, std::int64_t count) {
  const int root = call % kLateRanks;
  const auto own = [&] { return flat_full(count, given_by(call, group.rank())); };
  const LocalTensor all = own(), at_root = own(), piece = flat_full(count, -1);
  Tensors pieces;
  for (int rank = 0; rank < kLateRanks; ++rank)
    pieces.push_back(flat_full(count, given_by(call, group.rank()) + 1000 * rank));
  group.all_reduce(all);
  group.reduce(at_root, root);
  group.reduce_scatter(piece, pieces);
  EXPECT_TRUE(equal(all, flat_full(count, sum_given(call)))) << "call " << call;
  EXPECT_TRUE(equal(at_root, group.rank() == root ? flat_full(count, sum_given(call)) : own()))
      << "call " << call;
  EXPECT_TRUE(equal(piece, flat_full(count, sum_given(call) + kLateRanks * 1000 * group.rank())))
      << "call " << call;
}

TEST(ShortMessagesTest, WhatHasComeIsKeptWhereARankIsLate) {
  test::run_ranks(kLateRanks, {.transport = Transport::tcp}, [](const ProcessGroup& group) {
    int call = 0;
    for (const std::int64_t count : {1, 17, 2048}) {
      for (int late = 0; late < kLateRanks; ++late, ++call) {
        const auto end = std::chrono::steady_clock::now() + milliseconds(5);
        // The others wait in vain for longer than the short way does.
        if (group.rank() == late) work_until(end);
        reduce_each_way(group, call, count);
        group.barrier();
      }
    }
  });
}

TEST(ShortMessagesTest, WhatAConnectionDoesNotTakeIsSentByAnOperation) {
  constexpr int kBroadcasts = 3000;
  constexpr std::int64_t kElements = 2048;  // 8 KiB: more than 20 MB in all
  std::atomic<int> sent{0};
  test::run_ranks(2, {.transport = Transport::tcp}, [&](const ProcessGroup& group) {
    group.barrier();
    const auto is_all_as_given = [](const LocalTensor& got, int call) {
      return equal(got, flat_full(kElements, call));
    };
    if (group.rank() == 0) {
      for (int call = 0; call < kBroadcasts; ++call) {
        group.broadcast(flat_full(kElements, call), 0);
        sent = call + 1;
      }
      return;
    }
    // Nothing is taken as long as the root still finds room.
    for (int known = -1; known != sent && known < kBroadcasts;) {
      known = sent;
      const auto end = std::chrono::steady_clock::now() + milliseconds(50);
      while (sent == known && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
    EXPECT_LT(sent, kBroadcasts);
    int wrong = 0;
    for (int call = 0; call < kBroadcasts; ++call) {
      const LocalTensor got = flat_full(kElements, -1);
      group.broadcast(got, 0);
      wrong += is_all_as_given(got, call) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST(ShortMessagesTest, WhatAConnectionDoesNotTakeOfABatchIsSentByOperations) {
  constexpr int kBatches = 200, kOfBatch = 20;  // of 8 KiB each: more than 30 MB in all
  constexpr std::int64_t kElements = 2048;
  std::atomic<bool> all_begun{false};
  test::run_ranks(2, {.transport = Transport::tcp}, [&](const ProcessGroup& group) {
    const LocalTensor hello = flat_full(1, 1);
    // The connection is made.
    group.rank() == 0 ? group.send(hello, 1) : void(group.recv(hello, 0));
    std::vector<Tensors> kept;
    std::vector<Work> works;
    for (int batch = 0; batch < kBatches; ++batch) {
      std::vector<P2POp> messages;
      kept.emplace_back();
      for (int place = 0; place < kOfBatch; ++place) {
        const int number = batch * kOfBatch + place;
        kept.back().push_back(flat_full(kElements, group.rank() == 0 ? number : -1));
        messages.push_back({group.rank() == 0 ? P2POp::Kind::send : P2POp::Kind::receive,
                            kept.back().back(), 1 - group.rank()});
      }
      // Nothing is taken before all is begun, which no connection has room for.
      while (group.rank() == 1 && !all_begun) std::this_thread::yield();
      for (const Work& work : group.batch_isend_irecv(messages)) works.push_back(work);
    }
    if (group.rank() == 0) {
      EXPECT_FALSE(works.back().is_completed());
      EXPECT_TRUE(works.front().is_completed());
      all_begun = true;
    }
    for (const Work& work : works) work.wait();
    int wrong = 0;
    for (int number = 0; number < kBatches * kOfBatch; ++number)
      wrong +=
          equal(kept[number / kOfBatch][number % kOfBatch], flat_full(kElements, number)) ? 0 : 1;
    EXPECT_EQ(wrong, 0);
  });
}

TEST(ShortMessagesTest, BatchesOnConnectionsGoWhoeverIsLate) {
  test::run_ranks(3, {.transport = Transport::tcp}, [](const ProcessGroup& group) {
    const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    int call = 0;
    for (const std::int64_t count : {0, 1, 1000, 2048, 2049, 20000}) {
      for (int late = 0; late < 3; ++late, ++call) {
        const auto end = std::chrono::steady_clock::now() + milliseconds(2);
        if (group.rank() == late) work_until(end);
        const LocalTensor first = flat_full(count, -1), second = flat_full(count, -1);
        // Taken in another order than sent.
        const std::vector<Work> works = group.batch_isend_irecv(
            {{P2POp::Kind::send, flat_full(count, call * 3 + group.rank()), next, 1},
             {P2POp::Kind::receive, second, before, 2},
             {P2POp::Kind::send, flat_full(count, -2 - call * 3 - group.rank()), next, 2},
             {P2POp::Kind::receive, first, before, 1}});
        for (const Work& work : works) work.wait();
        EXPECT_EQ(works[1].source_rank(), before);
        EXPECT_TRUE(equal(first, flat_full(count, call * 3 + before))) << "call " << call;
        EXPECT_TRUE(equal(second, flat_full(count, -2 - call * 3 - before))) << "call " << call;
      }
    }
  });
}

TEST(ShortMessagesTest, AGroupOnConnectionsTimesAllItsMessages) {
  test::run_ranks(2, {.transport = Transport::tcp}, [](const ProcessGroup& group) {
    const LocalTensor given = flat_full(3, 1), got = flat_full(3, 0);
    for (int call = 0; call < 50; ++call)
      for (const Work& work :
           group.batch_isend_irecv({{P2POp::Kind::send, given, 1 - group.rank()},
                                    {P2POp::Kind::receive, got, 1 - group.rank()}}))
        work.wait();
    for (const OpKind kind : {OpKind::send, OpKind::receive}) {
      const CallCount count = group.call_counters().of(kind);
      EXPECT_EQ(count.calls, 50U);
      EXPECT_EQ(count.timed, 50U);
    }
  });
}

TEST(ShortMessagesTest, AGroupOnConnectionsTimesAllItsCalls) {
  test::run_ranks(kLateRanks, {.transport = Transport::tcp}, [](const ProcessGroup& group) {
    for (int call = 0; call < 50; ++call) reduce_each_way(group, call, 3);
    for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter}) {
      const CallCount count = group.call_counters().of(kind);
      EXPECT_EQ(count.calls, 50U);
      EXPECT_EQ(count.timed, 50U);
    }
  });
}

}  // namespace
}  // namespace dtrun::collectives
