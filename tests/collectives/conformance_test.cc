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

// Two machines, and three: shared memory and TCP at once.
INSTANTIATE_TEST_SUITE_P(
    , CpuConformanceTest,
    testing::Values(Place{"Automatic", {}}, Place{"Tcp", {.transport = Transport::tcp}},
                    Place{"TwoAndTheRest", {.machines = {2}}, {3, 4, 7}},
                    Place{"ThreeAndTheRest", {.machines = {3}}, {4, 7}},
                    Place{"OneAndTwoAndTheRest", {.machines = {1, 2}}, {3, 4, 7}}),
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

}  // namespace
}  // namespace dtrun::collectives
