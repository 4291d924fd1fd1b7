// The cpu backend in the conformance suite, over shared memory, over TCP, and over both at once.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtrun/tensor/ops.h"
#include "support/conformance_suite.h"

namespace dtrun::collectives {
namespace {

using conformance::Part;
using conformance::Subject;

/// How the ranks reach each other, and how many there are.
struct Place {
  std::string name;
  test::RankOptions options;
  std::vector<int> worlds = Subject().worlds;
};

class CpuConformanceTest : public testing::TestWithParam<Place> {
 protected:
  void run(Part part) const {
    const Place& place = GetParam();
    Subject subject;
    subject.name = "cpu, " + place.name;
    subject.worlds = place.worlds;
    subject.run = [options = place.options](int size, const test::RankBody& body) {
      test::run_ranks(size, options, body);
    };
    run_part(subject, part);
  }
};

TEST_P(CpuConformanceTest, ReductionsAreThoseOfTheReference) {
  run(Part::reductions);
}
TEST_P(CpuConformanceTest, PiecesComeWhereTheyBelong) {
  run(Part::pieces);
}
TEST_P(CpuConformanceTest, MessagesComeWhole) {
  run(Part::messages);
}
TEST_P(CpuConformanceTest, GroupsWorkSideBySide) {
  run(Part::groups);
}

// Two machines, and three: shared memory and TCP at once. In place: out of one another's tensors.
INSTANTIATE_TEST_SUITE_P(
    , CpuConformanceTest,
    testing::Values(
        Place{"Automatic", {}}, Place{"InPlace", {.shared_memory = true}},
        Place{"Tcp", {.transport = Transport::tcp}},
        Place{"TcpOnTwoConnections",
              {.transport = Transport::tcp, .connections_per_peer = 2},
              {2, 3, 5}},
        Place{"TcpOnFourConnections",
              {.transport = Transport::tcp, .connections_per_peer = 4},
              {2, 4}},
        Place{"TwoAndTwoOnFourConnections", {.machines = {2}, .connections_per_peer = 4}, {4}},
        Place{"TcpBetweenManyMachines", {.transport = Transport::tcp}, {16}},
        Place{"TwoAndTheRest", {.machines = {2}}, {3, 4, 7}},
        Place{"ThreeAndTheRest", {.machines = {3}}, {4, 7}},
        Place{"OneAndTwoAndTheRest", {.machines = {1, 2}}, {3, 4, 7}}),
    [](const auto& tested) { return tested.param.name; });

class ManyRanksTest : public testing::TestWithParam<Place> {
 protected:
  void run(Part part) const {
    Subject subject;
    subject.name = "cpu, many ranks, " + GetParam().name;
    subject.worlds = GetParam().worlds;
    subject.dtypes = {tensors::DType::f32, tensors::DType::i32};
    subject.counts = {0, 7};
    subject.large_counts = {4096 + 3};  // 40 times that is too much for posts
    subject.run = [](int size, const test::RankBody& body) {
      test::run_ranks(size, GetParam().options, body);
    };
    run_part(subject, part);
  }
};
TEST_P(ManyRanksTest, ReductionsAreThoseOfTheReference) {
  run(Part::reductions);
}
TEST_P(ManyRanksTest, PiecesComeWhereTheyBelong) {
  run(Part::pieces);
}
TEST_P(ManyRanksTest, MessagesComeWhole) {
  run(Part::messages);
}
INSTANTIATE_TEST_SUITE_P(, ManyRanksTest,
                         testing::Values(Place{"Automatic", {}, {33, 40}},
                                         Place{"Tcp", {.transport = Transport::tcp}, {40}},
                                         Place{"TwentyAndTheRest", {.machines = {20}}, {33}}),
                         [](const auto& tested) { return tested.param.name; });

class LargeTensorsTest : public testing::TestWithParam<Place> {};
TEST_P(LargeTensorsTest, AMebiElementsAndThreeAreThoseOfTheReference) {
  Subject subject;
  subject.name = "cpu, 1 Mi + 3 elements, " + GetParam().name;
  subject.worlds = GetParam().worlds;
  subject.dtypes = {tensors::DType::f32, tensors::DType::u8};
  subject.counts = {};
  subject.large_counts = {(1 << 20) + 3};
  subject.run = [](int size, const test::RankBody& body) {
    test::run_ranks(size, GetParam().options, body);
  };
  for (const Part part : {Part::reductions, Part::pieces, Part::messages}) run_part(subject, part);
}
INSTANTIATE_TEST_SUITE_P(, LargeTensorsTest,
                         testing::Values(Place{"Automatic", {}, {2, 4}},
                                         Place{"InPlace", {.shared_memory = true}, {2, 3}},
                                         Place{"Tcp", {.transport = Transport::tcp}, {2, 3}},
                                         Place{"TwoAndTwo", {.machines = {2}}, {4}},
                                         Place{"ThreeAndOne", {.machines = {3}}, {4}}),
                         [](const auto& tested) { return tested.param.name; });

/// Large messages through the ring, as where the kernel lets nobody read another's memory.
TEST(RingConformanceTest, PiecesAndMessagesComeWhole) {
  Subject subject;
  subject.name = "cpu without single copies";
  subject.worlds = {2, 3};
  subject.run = [](int size, const test::RankBody& body) {
    test::run_ranks(size, {.single_copy = SingleCopy::never}, body);
  };
  run_part(subject, Part::pieces);
  run_part(subject, Part::messages);
}

/// A machine's part of a sum is more than an f16 can hold, and one of an average less.
TEST(MachinesTest, HalvesAreRoundedOnce) {
  constexpr std::int64_t kCount = 100'000;
  test::run_ranks(4, {.machines = {2}}, [](const ProcessGroup& group) {
    const tensors::TensorOptions half{.dtype = tensors::DType::f16};
    const LocalTensor sum = tensors::full({kCount}, group.rank() < 2 ? 40000 : -40000, half);
    group.all_reduce(sum);
    const LocalTensor average = tensors::full({kCount}, 0x1p-24, half);
    group.all_reduce(average, ReduceOp::avg);
    const std::vector<LocalTensor> inputs(4, tensors::full({kCount}, 40000, half));
    const LocalTensor scattered = tensors::empty({kCount}, half);
    group.reduce_scatter(scattered, inputs, ReduceOp::avg);
    for (const std::int64_t i : {std::int64_t{0}, kCount / 2, kCount - 1}) {
      EXPECT_EQ(sum.to_vector()[static_cast<std::size_t>(i)], 0);
      EXPECT_EQ(average.to_vector()[static_cast<std::size_t>(i)], 0x1p-24);
      EXPECT_EQ(scattered.to_vector()[static_cast<std::size_t>(i)], 40000);
    }
  });
}

/// What every rank of such a group gets of an all_reduce, an all_gather, a reduce and a broadcast
/// of few elements whose sum depends on their order.
std::vector<std::vector<double>> small_results(int size, const test::RankOptions& options) {
  constexpr std::int64_t kCount = 129;
  std::vector<std::vector<double>> results(static_cast<std::size_t>(size));
  test::run_ranks(size, options, [&](const ProcessGroup& group) {
    std::vector<double>& own = results[static_cast<std::size_t>(group.rank())];
    const auto keep = [&own](const LocalTensor& tensor) {
      const std::vector<double> values = tensor.to_vector();
      own.insert(own.end(), values.begin(), values.end());
    };
    for (const tensors::DType dtype : {tensors::DType::f32, tensors::DType::bf16}) {
      const LocalTensor mine = tensors::empty({kCount}, {.dtype = dtype});
      for (std::int64_t i = 0; i < kCount; ++i) mine[i].fill_(1.0 / (1 + 7 * group.rank() + i));
      const LocalTensor sum = mine.clone();
      group.all_reduce(sum);
      keep(sum);
      const LocalTensor all = tensors::empty({group.size() * kCount}, {.dtype = dtype});
      group.all_gather_into_tensor(all, mine);
      keep(all);
      const LocalTensor average = mine.clone();
      group.reduce(average, group.size() - 1, ReduceOp::avg);
      group.broadcast(average, group.size() - 1);
      keep(average);
    }
  });
  return results;
}

// Reductions are combined in the order of the ranks, by posts as by messages or rounds.
TEST(SmallResultsTest, TheBitsAreTheSameOnAllRanksInEveryRunAndByEveryWay) {
  for (const int size : {4, 7, 17}) {
    const std::vector<std::vector<double>> expected = small_results(size, {});
    for (const std::vector<double>& of_rank : expected) EXPECT_EQ(of_rank, expected.front());
    for (int run = 0; run < 2; ++run) {
      EXPECT_EQ(small_results(size, {.transport = Transport::tcp}), expected) << size;
      EXPECT_EQ(small_results(size, {.machines = {2}}), expected) << size;
      EXPECT_EQ(small_results(size, {.machines = {1, 2}}), expected) << size;
    }
  }
}

}  // namespace
}  // namespace dtrun::collectives
