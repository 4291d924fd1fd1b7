// The cpu backend in the conformance suite, over shared memory and over TCP.
#include <gtest/gtest.h>

#include "dtrun/tensor/ops.h"
#include "support/conformance_suite.h"

namespace dtrun::collectives {
namespace {

using conformance::Part;
using conformance::Subject;

class CpuConformanceTest : public testing::TestWithParam<Transport> {
 protected:
  void run(Part part) const {
    const Transport transport = GetParam();
    Subject subject;
    subject.name = transport == Transport::tcp ? "cpu over TCP" : "cpu";
    subject.run = [transport](int size, const test::RankBody& body) {
      test::run_ranks(size, {.transport = transport}, body);
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

/// Two machines, and three: shared memory and TCP at once. By how many ranks are on the first ones.
class MachinesConformanceTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  void run(Part part) const {
    Subject subject;
    subject.name = "cpu on several machines";
    subject.worlds.clear();
    for (const int size : {3, 4, 7}) {
      if (GetParam().front() < size) subject.worlds.push_back(size);
    }
    subject.run = [machines = GetParam()](int size, const test::RankBody& body) {
      test::run_ranks(size, {.machines = machines}, body);
    };
    run_part(subject, part);
  }
};

TEST_P(MachinesConformanceTest, ReductionsAreThoseOfTheReference) {
  run(Part::reductions);
}
TEST_P(MachinesConformanceTest, PiecesComeWhereTheyBelong) {
  run(Part::pieces);
}
TEST_P(MachinesConformanceTest, MessagesComeWhole) {
  run(Part::messages);
}
TEST_P(MachinesConformanceTest, GroupsWorkSideBySide) {
  run(Part::groups);
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

INSTANTIATE_TEST_SUITE_P(, MachinesConformanceTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{1, 2}),
                         [](const auto& tested) {
                           std::string name;
                           for (const int ranks : tested.param)
                             name += std::to_string(ranks) + "And";
                           return name + "TheRest";
                         });

INSTANTIATE_TEST_SUITE_P(, CpuConformanceTest,
                         testing::Values(Transport::automatic, Transport::tcp),
                         [](const auto& tested) {
                           return tested.param == Transport::tcp ? "Tcp" : "Automatic";
                         });

}  // namespace
}  // namespace dtrun::collectives
