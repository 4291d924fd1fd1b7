// Every operation among ranks that are threads, over shared memory and over TCP.
#include "dtrun/collectives/process_group.h"

#include <gtest/gtest.h>

#include <deque>
#include <latch>
#include <numeric>
#include <string>
#include <thread>

#include "dtrun/base/error.h"
#include "dtrun/collectives/agreed_exchange.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"

namespace dtrun::collectives {
namespace {

using tensors::DType;
using tensors::LocalTensor;
using tensors::tensor_from;
using test::run_ranks;
using Values = std::vector<double>;

struct Setting {
  int size;
  Transport transport;
};

std::string setting_name(const testing::TestParamInfo<Setting>& info) {
  return (info.param.transport == Transport::tcp ? "Tcp" : "Automatic") +
         std::to_string(info.param.size);
}

class ProcessGroupTest : public testing::TestWithParam<Setting> {
 protected:
  int size() const { return GetParam().size; }
  int last() const { return size() - 1; }
  void run(const test::RankBody& body) const {
    run_ranks(size(), {.transport = GetParam().transport}, body);
  }
  static Values values(int rank, std::int64_t count) {
    Values result(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = static_cast<double>((static_cast<int>(i) * 3 + rank * 7) % 11);
    return result;
  }
  static LocalTensor make(int rank, std::int64_t count, DType dtype = DType::f32) {
    return tensor_from(values(rank, count), {count}, dtype);
  }
  Values sum(std::int64_t count) const {
    Values total(static_cast<std::size_t>(count), 0);
    for (int rank = 0; rank < size(); ++rank) {
      const Values more = values(rank, count);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += more[i];
    }
    return total;
  }
};

TEST_P(ProcessGroupTest, TheGroupKnowsItself) {
  run([this](const ProcessGroup& group) {
    EXPECT_EQ(group.size(), size());
    EXPECT_EQ(group.backend_name(), "cpu");
    EXPECT_TRUE(group.to_string().starts_with("ProcessGroup(name=world, backend=cpu, rank=" +
                                              std::to_string(group.rank())));
  });
}

TEST_P(ProcessGroupTest, AllReduceSumsSmallAndLarge) {
  run([this](const ProcessGroup& group) {
    for (const std::int64_t count : {0, 1, 7, 5000, 400003}) {
      const LocalTensor tensor = make(group.rank(), count);
      group.all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector(), sum(count)) << count;
    }
  });
}

TEST_P(ProcessGroupTest, AllReduceIntoATensorLeavesTheInputAndMayNotOverlapIt) {
  run([this](const ProcessGroup& group) {
    for (const std::int64_t count : {0, 1, 7, 5000, 400003}) {
      const LocalTensor input = make(group.rank(), count);
      const LocalTensor output = make(99, count);
      group.all_reduce_into_tensor(output, input);
      EXPECT_EQ(output.to_vector(), sum(count)) << count;
      EXPECT_EQ(input.to_vector(), values(group.rank(), count)) << count;
    }
    std::vector<std::vector<int>> each;
    for (int rank = 0; rank < size(); ++rank) each.push_back({rank});
    const ProcessGroup alone = group.split(each, "alone");
    const LocalTensor whole = make(group.rank(), 8);
    const auto refused = [&](const LocalTensor& output, const LocalTensor& input) {
      try {
        alone.all_reduce_into_tensor(output, input);
        ADD_FAILURE() << "no error";
      } catch (const base::Error& error) {
        EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
      }
    };
    refused(whole.narrow(0, 0, 5), whole.narrow(0, 3, 5));
    refused(whole.narrow(0, 0, 5), whole.narrow(0, 3, 4));
    group.all_reduce_into_tensor(whole.narrow(0, 0, 4), whole.narrow(0, 4, 4));
    const std::vector<double> all = sum(8);
    EXPECT_EQ(whole.narrow(0, 0, 4).to_vector(), std::vector<double>(all.begin() + 4, all.end()));
  });
}

TEST_P(ProcessGroupTest, BroadcastFromEveryRank) {
  run([this](const ProcessGroup& group) {
    for (int source = 0; source < size(); ++source)
      for (const std::int64_t count : {0, 1, 100001}) {
        const LocalTensor tensor = make(group.rank(), count, DType::i64);
        group.broadcast(tensor, source);
        EXPECT_EQ(tensor.to_vector(), values(source, count));
      }
  });
}

TEST_P(ProcessGroupTest, ReduceLeavesTheOthersTensorsAlone) {
  run([this](const ProcessGroup& group) {
    for (const std::int64_t count : {3, 60001}) {
      const LocalTensor tensor = make(group.rank(), count);
      group.reduce(tensor, last());
      EXPECT_EQ(tensor.to_vector(),
                group.rank() == last() ? sum(count) : values(group.rank(), count));
    }
  });
}

TEST_P(ProcessGroupTest, UnevenAndEmptyPiecesAreGathered) {
  run([this](const ProcessGroup& group) {
    const auto count = [](int rank) { return std::int64_t{(rank * 5) % 4}; };
    std::vector<LocalTensor> outputs;
    for (int rank = 0; rank < size(); ++rank) outputs.push_back(tensors::zeros({count(rank)}));
    const LocalTensor input = make(group.rank(), count(group.rank()));
    group.all_gather(outputs, input);
    for (int rank = 0; rank < size(); ++rank)
      EXPECT_EQ(outputs[static_cast<std::size_t>(rank)].to_vector(), values(rank, count(rank)));
    const bool root = group.rank() == last();
    if (root)
      for (const LocalTensor& output : outputs) output.fill_(-1);
    group.gather(input, root ? outputs : std::vector<LocalTensor>(), last());
    for (int rank = 0; rank < size(); ++rank)
      EXPECT_EQ(outputs[static_cast<std::size_t>(rank)].to_vector(), values(rank, count(rank)));
  });
}

TEST_P(ProcessGroupTest, ScatterReduceScatterAndAllToAllExchangePieces) {
  run([this](const ProcessGroup& group) {
    const int rank = group.rank();
    std::vector<LocalTensor> inputs;
    std::vector<LocalTensor> outputs;
    for (int peer = 0; peer < size(); ++peer) {
      inputs.push_back(make(100 * rank + peer, peer + 1));
      outputs.push_back(tensors::zeros({rank + 1}));
    }
    const LocalTensor output = tensors::zeros({rank + 1});
    group.scatter(output, rank == 0 ? inputs : std::vector<LocalTensor>(), 0);
    EXPECT_EQ(output.to_vector(), values(rank, rank + 1));

    group.reduce_scatter(output, inputs);
    Values total(static_cast<std::size_t>(rank + 1), 0);
    for (int from = 0; from < size(); ++from) {
      const Values more = values(100 * from + rank, rank + 1);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += more[i];
    }
    EXPECT_EQ(output.to_vector(), total);

    group.all_to_all(outputs, inputs);
    for (int from = 0; from < size(); ++from)
      EXPECT_EQ(outputs[static_cast<std::size_t>(from)].to_vector(),
                values(100 * from + rank, rank + 1));
  });
}

TEST_P(ProcessGroupTest, TensorsOfAnyLayoutTakePart) {
  run([this](const ProcessGroup& group) {
    const LocalTensor whole = tensors::zeros({3, 4});
    const LocalTensor column = whole.transpose(0, 1).select(0, 1);
    column.fill_(group.rank() + 1);
    group.all_reduce(column);
    const double expected = size() * (size() + 1) / 2.0;
    EXPECT_EQ(whole.to_vector(), (Values{0, expected, 0, 0, 0, expected, 0, 0, 0, expected, 0, 0}));
    const LocalTensor scalar = tensors::full({}, group.rank() == last() ? 5 : 0);
    group.broadcast(scalar, last());
    EXPECT_EQ(scalar.item(), 5);
  });
}

TEST_P(ProcessGroupTest, MessagesGoAroundTheRing) {
  if (size() == 1) GTEST_SKIP() << "a rank alone has nobody to send to";
  run([this](const ProcessGroup& group) {
    const int right = (group.rank() + 1) % size();
    const int left = (group.rank() + size() - 1) % size();
    for (const std::int64_t count : {0, 5, 200000}) {
      const LocalTensor incoming = tensors::zeros({count});
      const Work receive = group.irecv(incoming, left);
      const Work send = group.isend(make(group.rank(), count), right);
      send.wait();
      receive.wait();
      EXPECT_TRUE(receive.is_completed());
      EXPECT_EQ(receive.source_rank(), left);
      EXPECT_EQ(incoming.to_vector(), values(left, count));
    }
  });
}

TEST_P(ProcessGroupTest, TagsAndAnySourceChooseMessages) {
  run([this](const ProcessGroup& group) {
    if (group.rank() != 0) {
      group.send(make(group.rank(), 4), 0, 1);
      group.send(make(group.rank() + 50, 4), 0, 2);
      return;
    }
    for (int peer = 1; peer < size(); ++peer) {
      const LocalTensor second = tensors::zeros({4});
      EXPECT_EQ(group.recv(second, peer, 2), peer);
      EXPECT_EQ(second.to_vector(), values(peer + 50, 4));
    }
    std::vector<bool> heard(static_cast<std::size_t>(size()));
    for (int peer = 1; peer < size(); ++peer) {
      const LocalTensor first = tensors::zeros({4});
      const int from = group.recv(first, -1, 1);
      EXPECT_FALSE(heard.at(static_cast<std::size_t>(from)));
      heard[static_cast<std::size_t>(from)] = true;
      EXPECT_EQ(first.to_vector(), values(from, 4));
    }
  });
}

TEST_P(ProcessGroupTest, AsynchronousOperationsRunInTheirOrder) {
  run([this](const ProcessGroup& group) {
    std::vector<LocalTensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(make(group.rank() + i, 1 + 3000 * (i % 5)));
      works.push_back(i % 2 == 0 ? group.all_reduce(tensors.back(), ReduceOp::sum, {.async = true})
                                 : group.broadcast(tensors.back(), i % size(), {.async = true}));
    }
    group.barrier();
    for (const Work& work : works) {
      EXPECT_TRUE(work.is_completed());
      work.wait();
    }
    for (int i = 0; i < 20; ++i) {
      Values expected = values(i % size() + i, 1 + 3000 * (i % 5));
      if (i % 2 == 0) {
        std::fill(expected.begin(), expected.end(), 0);
        for (int rank = 0; rank < size(); ++rank) {
          const Values more = values(rank + i, 1 + 3000 * (i % 5));
          for (std::size_t k = 0; k < expected.size(); ++k) expected[k] += more[k];
        }
      }
      EXPECT_EQ(tensors[static_cast<std::size_t>(i)].to_vector(), expected) << i;
    }
  });
}

TEST_P(ProcessGroupTest, SplitMakesGroupsThatWorkSideBySide) {
  run([this](const ProcessGroup& group) {
    std::vector<int> even;
    std::vector<int> odd;
    for (int rank = 0; rank < size(); ++rank) (rank % 2 == 0 ? even : odd).push_back(rank);
    const ProcessGroup half = group.split({even, odd}, "half");
    ASSERT_TRUE(half.valid());
    EXPECT_EQ(half.global_ranks(), group.rank() % 2 == 0 ? even : odd);
    EXPECT_EQ(half.rank(), group.rank() / 2);
    const LocalTensor tensor = tensors::full({3}, group.rank());
    half.all_reduce(tensor);
    const std::vector<int>& members = half.global_ranks();
    EXPECT_EQ(tensor.to_vector(), Values(3, std::accumulate(members.begin(), members.end(), 0.0)));
    const ProcessGroup first = group.split({{0}}, "first");
    EXPECT_EQ(first.valid(), group.rank() == 0);
    group.barrier();
  });
}

TEST_P(ProcessGroupTest, CountersTellTheTransport) {
  run([this](const ProcessGroup& group) {
    group.all_gather(
        std::vector<LocalTensor>(static_cast<std::size_t>(size()), tensors::zeros({8})),
        tensors::zeros({8}));
    const TransportCounters counters = group.counters();
    const auto bytes = static_cast<std::uint64_t>(32 * (size() - 1));
    const bool tcp = GetParam().transport == Transport::tcp;
    EXPECT_EQ(counters.tcp_bytes_sent, tcp ? bytes : 0);
    EXPECT_EQ(counters.tcp_bytes_received, tcp ? bytes : 0);
    EXPECT_EQ(counters.shared_memory_bytes_sent, tcp ? 0 : bytes);
    EXPECT_EQ(counters.shared_memory_bytes_received, tcp ? 0 : bytes);
  });
}

TEST(MixedTransportTest, SharedMemoryAndTcpWorkInOneGroup) {
  const auto store = rendezvous::make_hash_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([rank, store] {
      // Two ranks of a machine, and two that are reached by TCP only.
      const Transport transport = rank < 2 ? Transport::automatic : Transport::tcp;
      const ProcessGroup group =
          ProcessGroup::create(test::group_options(store, rank, 4, {.transport = transport}));
      for (const std::int64_t count : {1, 70001}) {
        const LocalTensor tensor = tensors::full({count}, rank);
        group.all_reduce(tensor);
        EXPECT_EQ(tensor.to_vector(), Values(static_cast<std::size_t>(count), 6));
      }
      const TransportCounters counters = group.counters();
      EXPECT_GT(counters.tcp_bytes_sent, 0U);
      EXPECT_EQ(counters.shared_memory_bytes_sent > 0, rank < 2);
      EXPECT_EQ(counters.shared_memory_bytes_received > 0, rank < 2);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(IntegerMeanTest, ItIsTheSumThatTheDtypeHoldsTruncatedTowardsZero) {
  run_ranks(3, [](const ProcessGroup& group) {
    // In one message, and in chunks.
    for (const std::int64_t count : {3, 30000}) {
      const auto mean = [&](double value, DType dtype) {
        const LocalTensor tensor = tensors::full({count}, value, {dtype});
        group.all_reduce(tensor, ReduceOp::avg);
        EXPECT_EQ(tensor.to_vector(),
                  Values(static_cast<std::size_t>(count), tensor.to_vector()[0]));
        return tensor.to_vector()[0];
      };
      EXPECT_EQ(mean(group.rank() == 0 ? 2 : 3, DType::i32), 2);     // 8 / 3
      EXPECT_EQ(mean(group.rank() == 0 ? -2 : -3, DType::i64), -2);  // -8 / 3
      EXPECT_EQ(mean(100, DType::u8), 14);                           // 300 is 44 in u8
    }
  });
}

TEST(LargeWorldTest, TwentyFourRanksReduceAndTalk) {
  run_ranks(24, [](const ProcessGroup& group) {
    for (const std::int64_t count : {1, 20000}) {
      const LocalTensor tensor = tensors::ones({count});
      group.all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector(), Values(static_cast<std::size_t>(count), 24));
    }
    const LocalTensor incoming = tensors::zeros({1});
    const Work receive = group.irecv(incoming, (group.rank() + 23) % 24);
    group.send(tensors::full({1}, group.rank()), (group.rank() + 1) % 24);
    receive.wait();
    EXPECT_EQ(incoming.item(), (group.rank() + 23) % 24);
  });
}

TEST(ThreadsTest, GroupsMayBeUsedFromDifferentThreadsAtOnce) {
  run_ranks(3, [](const ProcessGroup& group) {
    std::vector<ProcessGroup> groups;
    for (int i = 0; i < 3; ++i) groups.push_back(group.split({{0, 1, 2}}, "g"));
    std::vector<std::thread> threads;
    for (const ProcessGroup& own : groups)
      threads.emplace_back([&own] {
        for (int i = 0; i < 50; ++i) {
          const LocalTensor tensor = tensors::full({1 + 400 * (i % 7)}, own.rank());
          const Work work = own.all_reduce(tensor, ReduceOp::sum, {.async = i % 2 == 0});
          own.barrier();
          work.wait();
          EXPECT_EQ(tensor.to_vector().back(), 3);
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(ProcessGroupTest, EmptyPartsOfAnAgreedPlanAreNotWaitedFor) {
  for (const std::int64_t count : {3, 200000}) {
    run([&](const ProcessGroup& group) {
      const int right = (group.rank() + 1) % size(), left = (group.rank() + last()) % size();
      for (int call = 0; call < 4; ++call) {
        const LocalTensor input = make(group.rank() + call, count),
                          output = tensors::empty({count});
        if (size() == 1) {
          group.all_to_all_agreed({.plan = 5});
          continue;
        }
        group
            .all_to_all_agreed({.plan = 5,
                                .outputs = {{&left, 1}, {&output, 1}},
                                .inputs = {{&right, 1}, {&input, 1}}},
                               {.async = call == 3})
            .wait();
        EXPECT_EQ(output.to_vector(), values(left + call, count));
      }
    });
  }
}

/// Each rank but this one, from the right neighbour on.
std::vector<int> others_of(const ProcessGroup& group) {
  std::vector<int> others;
  for (int step = 1; step < group.size(); ++step)
    others.push_back((group.rank() + step) % group.size());
  return others;
}

// Strided parts, and more of them than a short call keeps on its stack.
TEST_P(ProcessGroupTest, AnAgreedExchangeHasPartsOfAnyPeersAndStrides) {
  run([&](const ProcessGroup& group) {
    const std::vector<int> others = others_of(group);
    for (int call = 0; call < 3; ++call) {
      const LocalTensor table = tensors::empty({3, size()}), result = tensors::empty({3, size()});
      table.fill_(group.rank() + 10 * call);
      result.fill_(-1);
      std::vector<LocalTensor> inputs, outputs;
      for (const int peer : others) {
        inputs.push_back(table.narrow(1, peer, 1));
        outputs.push_back(result.narrow(1, peer, 1));
      }
      group.all_to_all_agreed(
          {.plan = 9, .outputs = {others, outputs}, .inputs = {others, inputs}});
      for (int peer = 0; peer < size(); ++peer) {
        const double value = peer == group.rank() ? -1 : peer + 10 * call;
        EXPECT_EQ(result.narrow(1, peer, 1).to_vector(), std::vector<double>(3, value));
      }
    }
  });
}

TEST_P(ProcessGroupTest, PeersOfAnAgreedExchangeStandInOrder) {
  if (size() < 3) return run([](const ProcessGroup& group) { group.barrier(); });
  const auto thrown = test::run_failing_ranks(
      size(), {.transport = GetParam().transport}, [&](const ProcessGroup& group) {
        std::vector<int> others = others_of(group);
        if (group.rank() == 0) std::swap(others[0], others[1]);
        const std::vector<LocalTensor> parts(others.size(), tensors::ones({2}));
        group.all_to_all_agreed({.plan = 9, .outputs = {others, parts}, .inputs = {others, parts}});
      });
  for (const auto& mine : thrown) ASSERT_TRUE(mine);
  EXPECT_EQ(thrown[0]->code, base::ErrorCode::kInvalidArgument) << thrown[0]->text;
  EXPECT_NE(thrown[0]->text.find("outputs of rank 0 has the peers [2, 1"), std::string::npos)
      << thrown[0]->text;
}

TEST_P(ProcessGroupTest, WhoOnlySendsUnderAnAgreedPlanDoesNotWait) {
  if (size() < 3) return run([](const ProcessGroup& group) { group.barrier(); });
  constexpr int kCalls = 4;
  std::deque<std::latch> over;  // on rank 0, who sends, and on rank 2, who does nothing
  for (int call = 0; call < kCalls; ++call) over.emplace_back(2);
  run([&](const ProcessGroup& group) {
    group.barrier();
    for (int call = 0; call < kCalls; ++call) {
      const LocalTensor input = make(call, 5), output = tensors::empty({5});
      const int first = 0, second = 1;
      AgreedExchange exchange{.plan = 5};
      if (group.rank() == 0) exchange.inputs = {{&second, 1}, {&input, 1}};
      if (group.rank() == 1) {
        exchange.outputs = {{&first, 1}, {&output, 1}};
        over[static_cast<std::size_t>(call)].wait();
      }
      group.all_to_all_agreed(exchange);
      if (group.rank() == 1) {
        EXPECT_EQ(output.to_vector(), values(call, 5));
      }
      if (group.rank() == 0 || group.rank() == 2) over[static_cast<std::size_t>(call)].count_down();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    , ProcessGroupTest,
    testing::Values(Setting{1, Transport::automatic}, Setting{2, Transport::automatic},
                    Setting{3, Transport::automatic}, Setting{5, Transport::automatic},
                    Setting{8, Transport::automatic}, Setting{2, Transport::tcp},
                    Setting{3, Transport::tcp}, Setting{8, Transport::tcp}),
    setting_name);

TEST(AverageTest, HalvesWhoseSumIsNoHalfHaveAMean) {
  for (const int size : {2, 3})
    test::run_ranks(size, [](const ProcessGroup& group) {
      const LocalTensor tensor = tensors::full({1500}, 40000, {.dtype = DType::f16});
      group.all_reduce(tensor, ReduceOp::avg);
      EXPECT_EQ(tensor.to_vector(), std::vector<double>(1500, 40000));
      group.reduce(tensor, 0, ReduceOp::avg);
      EXPECT_EQ(tensor.to_vector(), std::vector<double>(1500, 40000));
    });
}

}  // namespace
}  // namespace dtrun::collectives
