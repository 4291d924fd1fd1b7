// Groups of more ranks than a block of rings has room for, and of so many machines that a small
// collective goes by rounds between them. Ranks are threads.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/tensor/ops.h"
#include "support/conformance_suite.h"
#include "support/conformance_values.h"

namespace dtrun::collectives {
namespace {

using conformance::Breadth;
using conformance::build_breadth;
using conformance::Part;
using conformance::Subject;
using conformance::Values;
using tensors::DType;

/// How the ranks reach each other, and how many there are.
struct ManyRanksPlace {
  std::string name;
  test::RankOptions options;
  std::vector<int> worlds;
};

/// Ranks are threads: all their connections are this process's.
bool raise_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >= 4096;
}

class ManyRanksTest : public testing::TestWithParam<ManyRanksPlace> {
 protected:
  void run(Part part) const {
    Subject subject;
    subject.name = "cpu, many ranks, " + GetParam().name;
    subject.worlds = GetParam().worlds;
    subject.dtypes = {tensors::DType::f32, tensors::DType::i32};
    subject.counts = {0, 7};
    subject.large_counts = {4096 + 3};  // 40 times that is too much for posts
    subject.large_meet_all = true;
    if (subject.breadth == Breadth::full && !raise_open_files())
      GTEST_SKIP() << "40 ranks need 4,096 open files, and the limit is lower";
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
INSTANTIATE_TEST_SUITE_P(
    , ManyRanksTest,
    testing::Values(ManyRanksPlace{"Automatic", {}, {33, 40}},
                    ManyRanksPlace{"InPlace", {.shared_memory = true}, {33, 40}},
                    ManyRanksPlace{"Tcp", {.transport = Transport::tcp}, {40}},
                    ManyRanksPlace{"TwentyAndTheRest", {.machines = {20}}, {33}}),
    [](const auto& tested) { return tested.param.name; });

/// What each rank of such a group gives, and what the sum of all is.
struct LongRows {
  LongRows(DType dtype, int size, std::int64_t elements)
      : sum(conformance::reduced(dtype, ReduceOp::sum, size, elements)),
        counts(static_cast<std::size_t>(size), elements / size) {
    for (int rank = 0; rank < size; ++rank)
      given.push_back(conformance::values_of(dtype, ReduceOp::sum, rank, elements));
    counts.back() += elements % size;
  }
  Values part(const Values& row, int rank) const {
    std::int64_t begin = 0;
    for (int before = 0; before < rank; ++before) begin += counts[static_cast<std::size_t>(before)];
    return {row.begin() + begin, row.begin() + begin + counts[static_cast<std::size_t>(rank)]};
  }
  Values sum;
  std::vector<Values> given;
  std::vector<std::int64_t> counts;  ///< of each rank's part of a row
};

/// The collectives of one rank, whose tensors are whole rows or cut into a part for each rank.
class LongCalls {
 public:
  LongCalls(const ProcessGroup& group, DType dtype, const LongRows& rows, CallOptions how)
      : group_(group), dtype_(dtype), rows_(rows), how_(how) {}

  void run() const {
    const int rank = group_.rank(), root = 5, source = group_.size() - 1;
    const Values& own = given(rank);
    const LocalTensor sum = tensor(own);
    group_.all_reduce(sum, ReduceOp::sum, how_).wait();
    expect(sum, rows_.sum, "all_reduce");
    const LocalTensor at_root = tensor(own);
    group_.reduce(at_root, root, ReduceOp::sum, how_).wait();
    expect(at_root, rank == root ? rows_.sum : own, "reduce");
    const LocalTensor sent = tensor(own);
    group_.broadcast(sent, source, how_).wait();
    expect(sent, given(source), "broadcast");
    const LocalTensor scattered = tensor(rows_.part(own, rank));
    group_.reduce_scatter(scattered, cut(tensor(own)), ReduceOp::sum, how_).wait();
    expect(scattered, rows_.part(rows_.sum, rank), "reduce_scatter");
    const LocalTensor gathered = blank();
    group_.all_gather(cut(gathered), tensor(rows_.part(given(0), rank)), how_).wait();
    expect(gathered, given(0), "all_gather");
    exchange();
  }

 private:
  const Values& given(int rank) const { return rows_.given[static_cast<std::size_t>(rank)]; }
  LocalTensor tensor(const Values& values) const {
    return tensors::tensor_from(values, {static_cast<std::int64_t>(values.size())}, dtype_);
  }
  LocalTensor blank() const {
    return tensors::zeros({static_cast<std::int64_t>(rows_.sum.size())}, {dtype_});
  }
  std::vector<LocalTensor> cut(const LocalTensor& row) const {
    return tensors::split(row, rows_.counts, 0);
  }
  void expect(const LocalTensor& actual, const Values& expected, const char* what) const {
    EXPECT_EQ(conformance::difference(actual, expected), "")
        << what << " of " << tensors::dtype_name(dtype_) << " on rank " << group_.rank() << " of "
        << group_.size();
  }
  /// Each gets its own part of all rows.
  void exchange() const {
    std::vector<LocalTensor> taken;
    for (int peer = 0; peer < group_.size(); ++peer)
      taken.push_back(
          tensors::zeros({rows_.counts[static_cast<std::size_t>(group_.rank())]}, {dtype_}));
    group_.all_to_all(taken, cut(tensor(given(group_.rank()))), how_).wait();
    for (int peer = 0; peer < group_.size(); ++peer)
      expect(taken[static_cast<std::size_t>(peer)], rows_.part(given(peer), group_.rank()),
             "all_to_all");
  }

  const ProcessGroup& group_;
  const DType dtype_;
  const LongRows& rows_;
  const CallOptions how_;
};

struct LongRowsPlace {
  std::string name;
  test::RankOptions options;
  std::vector<std::pair<int, DType>> worlds;
};
class LongRowsTest : public testing::TestWithParam<LongRowsPlace> {};
TEST_P(LongRowsTest, AMebibyteOfManyRanksIsThatOfTheReference) {
  if (!raise_open_files()) GTEST_SKIP() << "40 ranks need 4,096 open files, and the limit is lower";
  const bool is_full = build_breadth() == Breadth::full;
  // A sanitizer leaves no addresses for the spans of many ranks' tensors.
  if (!is_full && GetParam().name != "Automatic") GTEST_SKIP() << "a sanitizer runs one of these";
  const std::int64_t elements = (is_full ? 1 << 18 : 1 << 13) + 3;
  for (const auto& [size, dtype] : GetParam().worlds) {
    const LongRows rows(dtype, size, elements);
    test::run_ranks(size, GetParam().options, [&](const ProcessGroup& group) {
      LongCalls(group, dtype, rows, {.async = dtype == DType::bf16}).run();
    });
  }
}
INSTANTIATE_TEST_SUITE_P(
    , LongRowsTest,
    testing::Values(LongRowsPlace{"Automatic", {}, {{33, DType::bf16}, {40, DType::f32}}},
                    LongRowsPlace{"InPlace", {.shared_memory = true}, {{40, DType::f32}}},
                    LongRowsPlace{"Tcp", {.transport = Transport::tcp}, {{40, DType::bf16}}},
                    LongRowsPlace{"TwentyAndTheRest", {.machines = {20}}, {{33, DType::f32}}}),
    [](const auto& tested) { return tested.param.name; });

// So that a sanitizer sees them, too: rounds of all kinds begin at 32 machines, of some at 16.
TEST(ManyMachinesTest, SmallCollectivesBetweenThemAreThoseOfTheReference) {
  if (!raise_open_files()) GTEST_SKIP() << "33 ranks need 4,096 open files, and the limit is lower";
  for (const int size : {16, 33})
    test::run_ranks(size, {.transport = Transport::tcp}, [size](const ProcessGroup& group) {
      const LocalTensor own = tensors::full({2}, group.rank());
      const double all = size * (size - 1) / 2;
      group.barrier();
      const std::vector<LocalTensor> gathered(
          tensors::split(tensors::zeros({2 * size}),
                         std::vector<std::int64_t>(static_cast<std::size_t>(size), 2), 0));
      group.all_gather(gathered, own);
      for (int peer = 0; peer < size; ++peer)
        EXPECT_EQ(gathered[static_cast<std::size_t>(peer)].to_vector(), Values(2, peer));
      const LocalTensor sum = own.clone();
      group.all_reduce(sum);
      EXPECT_EQ(sum.to_vector(), Values(2, all));
      const LocalTensor at_root = own.clone();
      group.reduce(at_root, 2);
      EXPECT_EQ(at_root.to_vector(), Values(2, group.rank() == 2 ? all : group.rank()));
      group.broadcast(own, 3);
      EXPECT_EQ(own.to_vector(), Values(2, 3));
    });
}

}  // namespace
}  // namespace dtrun::collectives
