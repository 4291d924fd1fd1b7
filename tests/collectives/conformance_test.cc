// The cpu backend in the conformance suite, over shared memory, over TCP, and over both at once.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/tensor/ops.h"
#include "support/conformance_suite.h"

namespace dtrun::collectives {
namespace {

using conformance::Breadth;
using conformance::build_breadth;
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
    // Two machines of two ranks each, and three.
    if (!place.options.machines.empty()) subject.most_sanitized_ranks = 4;
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

// By cost tables that send everything another way than usual: nothing by posts, machines from one
// byte on, no machines and no rounds, whole reductions of any length and none, long rounds.
constexpr const char* kNoPosts = R"({"collectives": {"post_bytes": 0, "all_posts_bytes": 0}})";
constexpr const char* kOnlyMachines =
    R"({"collectives": {"machines_bytes": 1, "rounds_bytes": 0, "whole_reduce_bytes": 0}})";
constexpr const char* kOnlyMessages =
    R"({"collectives": {"machines_bytes": 1099511627776, "rounds_bytes": 0,
                        "whole_reduce_bytes": 1099511627776}})";
constexpr const char* kOnlyRounds =
    R"({"collectives": {"rounds_bytes": 1048576, "all_rounds_bytes": 1099511627776,
                        "machines_bytes": 1048577}})";

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
        Place{"OneAndTwoAndTheRest", {.machines = {1, 2}}, {3, 4, 7}},
        Place{"WithoutPosts", {.costs = kNoPosts}, {2, 3, 5}},
        Place{"WholeByMessages", {.transport = Transport::tcp, .costs = kOnlyMessages}, {2, 3}},
        Place{"ByMachinesAlone", {.machines = {2}, .costs = kOnlyMachines}, {3, 4, 7}},
        Place{"ByMessagesAlone", {.machines = {2}, .costs = kOnlyMessages}, {4}},
        Place{"ByRoundsAlone", {.machines = {2}, .costs = kOnlyRounds}, {3, 4, 7}}),
    [](const auto& tested) { return tested.param.name; });

class LargeTensorsTest : public testing::TestWithParam<Place> {};
TEST_P(LargeTensorsTest, AMebiElementsAndThreeAreThoseOfTheReference) {
  Subject subject;
  subject.name = "cpu, 1 Mi + 3 elements, " + GetParam().name;
  subject.worlds = GetParam().worlds;
  subject.dtypes = {tensors::DType::f32, tensors::DType::u8};
  // Halves take as long again; many_ranks_test has them in shared memory.
  if (!GetParam().options.machines.empty()) subject.dtypes.push_back(tensors::DType::bf16);
  subject.counts = {};
  subject.large_counts = {(1 << 20) + 3};
  subject.large_meet_all = true;
  if (subject.breadth != Breadth::full) {  // a sanitizer is slow: the same ways, fewer bytes
    // One of those that the small product keeps: without it nothing would be called.
    subject.dtypes = {tensors::DType::i32};
    const bool is_mixed = !GetParam().options.machines.empty();
    subject.large_counts = {(is_mixed ? 1 << 16 : 1 << 18) + 3};
    subject.worlds = {GetParam().worlds.front()};
    if (is_mixed) subject.most_sanitized_ranks = 4;
  }
  subject.run = [](int size, const test::RankBody& body) {
    test::run_ranks(size, GetParam().options, body);
  };
  for (const Part part : {Part::reductions, Part::pieces, Part::messages}) run_part(subject, part);
}
INSTANTIATE_TEST_SUITE_P(
    , LargeTensorsTest,
    testing::Values(
        Place{"Automatic", {}, {2, 4}}, Place{"Crowded", {.cpus = 1}, {6}},
        Place{"CrowdedInPlace", {.shared_memory = true, .cpus = 1}, {6}},
        Place{"CrowdedWithoutSingleCopies", {.single_copy = SingleCopy::never, .cpus = 1}, {6}},
        Place{"InPlace", {.shared_memory = true}, {2, 3}},
        Place{"Tcp", {.transport = Transport::tcp}, {2, 3}},
        Place{"TwoAndTwo", {.machines = {2}}, {4}}, Place{"ThreeAndOne", {.machines = {3}}, {4}}),
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

std::string bytes_of(const LocalTensor& tensor) {
  return {tensor.data_as<char>(),
          static_cast<std::size_t>(tensor.numel()) * tensors::item_size(tensor.dtype())};
}

/// What comes of an all_reduce and a reduce_scatter, summed, and a reduce, averaged, where each
/// rank gives `mine`. Asynchronous ones are in flight together.
struct Reduced {
  std::string sum, scattered_sum, average;
};
Reduced reduce_in_all_ways(const ProcessGroup& group, const LocalTensor& mine, bool async) {
  const CallOptions how{.async = async};
  const int size = group.size(), last = size - 1;
  const std::int64_t each = mine.numel() / size;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size), each);
  counts.back() += mine.numel() - each * size;
  const LocalTensor sum = mine.clone(), average = mine.clone(), given = mine.clone();
  const LocalTensor all = tensors::zeros({mine.numel()}, {mine.dtype()});
  const std::vector<LocalTensor> parts = tensors::split(all, counts, 0);
  const LocalTensor own = parts[static_cast<std::size_t>(group.rank())].clone();
  const Work works[] = {
      group.all_reduce(sum, ReduceOp::sum, how),
      group.reduce_scatter(own, tensors::split(given, counts, 0), ReduceOp::sum, how),
      group.reduce(average, last, ReduceOp::avg, how)};
  for (const Work& work : works) work.wait();
  group.all_gather(parts, own);
  group.broadcast(average, last);
  return {bytes_of(sum), bytes_of(all), bytes_of(average)};
}

/// What every rank of such a group gets of so many elements whose sum depends on their order.
/// @param in_rank_order a reduce_scatter has the bits of an all_reduce, then
using Results = std::vector<std::string>;  // bytes
Results ordered_results(int size, std::int64_t count, const test::RankOptions& options,
                        bool in_rank_order = true) {
  Results results(static_cast<std::size_t>(size));
  test::run_ranks(size, options, [&](const ProcessGroup& group) {
    std::string& own = results[static_cast<std::size_t>(group.rank())];
    std::vector<double> terms;
    for (std::int64_t i = 0; i < count; ++i)
      terms.push_back(1.0 / static_cast<double>(1 + 7 * group.rank() + i));
    for (const tensors::DType dtype : {tensors::DType::f32, tensors::DType::bf16}) {
      const LocalTensor mine = tensors::tensor_from(terms, {count}, dtype);
      const Reduced blocking = reduce_in_all_ways(group, mine, false);
      const Reduced async = reduce_in_all_ways(group, mine, true);
      EXPECT_TRUE(async.sum == blocking.sum) << "rank " << group.rank();
      EXPECT_TRUE(async.scattered_sum == blocking.scattered_sum) << "rank " << group.rank();
      EXPECT_TRUE(async.average == blocking.average) << "rank " << group.rank();
      if (in_rank_order) {
        EXPECT_TRUE(blocking.scattered_sum == blocking.sum) << "rank " << group.rank();
      }
      own += blocking.sum + blocking.scattered_sum + blocking.average;
    }
  });
  return results;
}

void expect_the_same_on_all_ranks(const Results& results) {
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    EXPECT_TRUE(results[rank] == results[0]) << "rank " << rank;
}

// Reductions are combined in the order of the ranks, by posts as by messages or rounds.
TEST(SmallResultsTest, TheBitsAreTheSameOnAllRanksInEveryRunAndByEveryWay) {
  constexpr std::int64_t kCount = 129;
  const int most = build_breadth() == Breadth::full ? 40 : 17;
  for (const int size : {4, 7, 17, most}) {
    const Results expected = ordered_results(size, kCount, {});
    expect_the_same_on_all_ranks(expected);
    for (int run = 0; run < 2; ++run) {
      EXPECT_TRUE(ordered_results(size, kCount, {.transport = Transport::tcp}) == expected) << size;
      EXPECT_TRUE(ordered_results(size, kCount, {.machines = {2}}) == expected) << size;
      EXPECT_TRUE(ordered_results(size, kCount, {.machines = {1, 2}}) == expected) << size;
    }
  }
}

// By machines each machine's ranks are combined first: other bits, but always the same ones.
TEST(LargeResultsTest, TheBitsAreTheSameOnAllRanksAndInEveryRun) {
  struct Way {
    int size;
    std::int64_t count;
    test::RankOptions options;
    bool in_rank_order = true;
  };
  const Way ways[] = {
      // Parts of a reduce_scatter from 1 MiB on go by chunks.
      {2, 700'000, {}},
      {2, 700'000, {.shared_memory = true}},
      {2, 700'000, {.transport = Transport::tcp}},
      {4, 100'000, {}},
      {4, 100'000, {.shared_memory = true}},
      {4, 100'000, {.single_copy = SingleCopy::never}},
      {4, 100'000, {.transport = Transport::tcp}},
      {4, 100'000, {.machines = {2}}, false},
      {4, 100'000, {.machines = {3}}, false},
      {7, 100'000, {.machines = {1, 2}}, false},
      {40, 5'000, {}},
      {40, 5'000, {.shared_memory = true}},
      {12, 300'000, {.cpus = 2}},
      {12, 300'000, {.shared_memory = true, .cpus = 2}},
      {12, 300'000, {.single_copy = SingleCopy::never, .cpus = 2}},
      {12, 300'000, {.transport = Transport::tcp}},
      {40, 5'000, {.transport = Transport::tcp}},
      {33, 33'000, {.machines = {16}}, false},
  };
  std::map<std::pair<int, std::int64_t>, Results> in_rank_order;
  for (const Way& way : ways) {
    // A sanitizer leaves no addresses for the spans of many ranks' tensors.
    const int most = way.options.shared_memory ? 4 : 17;
    if (build_breadth() == Breadth::small && way.size > most) continue;
    SCOPED_TRACE(fmt::format("{} ranks, {} elements", way.size, way.count));
    const Results once = ordered_results(way.size, way.count, way.options, way.in_rank_order);
    expect_the_same_on_all_ranks(once);
    EXPECT_TRUE(ordered_results(way.size, way.count, way.options, way.in_rank_order) == once);
    if (!way.in_rank_order) continue;
    const auto first = in_rank_order.emplace(std::pair(way.size, way.count), once).first;
    EXPECT_TRUE(once == first->second);
  }
}

}  // namespace
}  // namespace dtrun::collectives
