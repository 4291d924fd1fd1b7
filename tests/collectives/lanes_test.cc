// Long collectives of the cpu backend beside short ones: neither waits for the other, unless they
// have memory in common.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "algorithm.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/flat_tensors.h"
#include "support/rank_threads.h"

namespace dtrun::collectives {
namespace {

using tensors::DType;
using tensors::LocalTensor;
using test::flat_full;
using test::flat_ones;

constexpr CallOptions kBehind{.async = true};
constexpr std::int64_t kLong = kBulkBytes / sizeof(float);

struct Ground {
  const char* name;
  Transport transport;
  std::vector<int> machines;
  bool shared_memory = false;
};

void PrintTo(const Ground& ground, std::ostream* out) {
  *out << ground.name;
}

class LanesTest : public testing::TestWithParam<Ground> {
 protected:
  static test::RankOptions options() {
    return {.transport = GetParam().transport,
            .machines = GetParam().machines,
            .shared_memory = GetParam().shared_memory};
  }
  static void run(int size, const test::RankBody& body) { test::run_ranks(size, options(), body); }
};

TEST_P(LanesTest, AShortCollectiveIsOverBeforeALongOne) {
  int overtook = 0;
  for (int attempt = 0; attempt < 10 && overtook == 0; ++attempt)
    run(3, [&](const ProcessGroup& group) {
      const LocalTensor gradients = flat_ones(8 << 20), number = flat_ones(1);
      const Work work = group.all_reduce(gradients, ReduceOp::sum, kBehind);
      group.all_reduce(number);
      const bool is_first = !work.is_completed();
      work.wait();
      EXPECT_EQ(number.item(), 3);
      EXPECT_TRUE(equal(gradients, flat_full(8 << 20, 3)));
      if (group.rank() == 0 && is_first) ++overtook;
    });
  EXPECT_EQ(overtook, 1);
}

TEST_P(LanesTest, CallsOnTheSameMemoryKeepTheirOrder) {
  run(3, [](const ProcessGroup& group) {
    const LocalTensor whole = flat_full(kLong, 1);
    const LocalTensor first = whole.slice(0, 0, 4), last = whole.slice(0, kLong - 4, kLong);
    std::vector<Work> works;
    works.push_back(group.all_reduce(whole, ReduceOp::sum, kBehind));  // 3
    works.push_back(group.all_reduce(first, ReduceOp::sum, kBehind));  // 9
    works.push_back(group.all_reduce(last, ReduceOp::sum, kBehind));   // 9
    works.push_back(group.all_reduce(whole, ReduceOp::sum, kBehind));  // 27, 9, 27
    works.push_back(group.broadcast(first, 1, kBehind));
    works.push_back(group.all_reduce(first, ReduceOp::sum, kBehind));  // 81
    // In whichever order they are waited for.
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    EXPECT_EQ(first.to_vector(), std::vector<double>(4, 81));
    EXPECT_TRUE(equal(whole.slice(0, 4, kLong - 4), flat_full(kLong - 8, 9)));
    EXPECT_EQ(last.to_vector(), std::vector<double>(4, 27));
  });
}

/// Calls of all sizes on parts of one tensor, of which many are in flight at once, against the same
/// calls one after the other.
TEST_P(LanesTest, ManyCallsInFlightGiveWhatTheyGiveOneAfterTheOther) {
  constexpr int kCalls = 60;
  constexpr std::int64_t kCount = 6 * kLong;
  run(3, [](const ProcessGroup& group) {
    const LocalTensor own = tensors::arange(kCount).to(DType::f32);
    const LocalTensor beside = own.clone(), after = own.clone();
    const auto call = [&](const LocalTensor& numbers, std::mt19937& random,
                          const CallOptions& options) {
      const std::int64_t count = random() % 3 == 0 ? kLong + random() % kLong : 1 + random() % 999;
      const std::int64_t begin = random() % (kCount - count);
      const LocalTensor part = numbers.slice(0, begin, begin + count);
      const int root = static_cast<int>(random() % 3);
      switch (random() % 3) {
        case 0:
          return group.all_reduce(part, ReduceOp::max, options);
        case 1:
          return group.broadcast(part, root, options);
        default:
          return group.all_reduce(part, ReduceOp::avg, options);
      }
    };
    std::mt19937 random(7), same(7);
    std::vector<Work> works;
    for (int i = 0; i < kCalls; ++i) {
      works.push_back(call(beside, random, kBehind));
      if (i % 7 == 0) group.barrier();
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < kCalls; ++i) call(after, same, {});
    EXPECT_TRUE(equal(beside, after));
  });
}

TEST_P(LanesTest, ALongCallAgainstAShortOneIsToldToBoth) {
  const auto thrown = test::run_failing_ranks(3, options(), [](const ProcessGroup& group) {
    // The order is wrong, and neither lane has a call that differs in itself.
    const LocalTensor few = flat_ones(4), many = flat_ones(kLong);
    const bool odd = group.rank() == 2;  // of the second machine, where there are two
    const Work first = group.all_reduce(odd ? many : few, ReduceOp::sum, kBehind);
    group.all_reduce(odd ? few : many);
    first.wait();
  });
  for (const auto& rank : thrown) {
    ASSERT_TRUE(rank);
    EXPECT_EQ(rank->code, base::ErrorCode::kDisagreement) << rank->text;
    EXPECT_NE(rank->text.find("all_reduce #1 (f32 x 4, sum)"), std::string::npos) << rank->text;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LanesTest,
                         testing::Values(Ground{"SharedMemory", Transport::automatic, {}},
                                         Ground{"InPlace", Transport::automatic, {}, true},
                                         Ground{"Tcp", Transport::tcp, {}},
                                         Ground{"Mixed", Transport::automatic, {2, 1}}),
                         [](const auto& ground) { return std::string(ground.param.name); });

}  // namespace
}  // namespace dtrun::collectives
