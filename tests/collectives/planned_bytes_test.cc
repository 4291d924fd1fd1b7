// What ProcessGroup::bytes_to_send() tells of a call is what the transports count when it is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"

namespace dtrun::collectives {
namespace {

using tensors::LocalTensor;

constexpr int kRoot = 1;

std::int64_t bytes_sent(const ProcessGroup& group) {
  const TransportCounters counters = group.counters();
  return static_cast<std::int64_t>(counters.shared_memory_bytes_sent + counters.tcp_bytes_sent);
}

std::vector<std::int64_t> counts_of(const std::vector<LocalTensor>& tensors) {
  std::vector<std::int64_t> counts;
  for (const LocalTensor& tensor : tensors) counts.push_back(tensor.numel());
  return counts;
}

/// Of one rank; every part has `count` elements, that of rank 0 one more where they may differ.
class Calls {
 public:
  Calls(const ProcessGroup& group, std::int64_t count)
      : group_(group), count_(count), is_root_(group.rank() == kRoot) {}

  void expect_all_told() {
    const LocalTensor one = tensors::zeros({count_});
    std::vector<LocalTensor> equal, unequal;
    for (int rank = 0; rank < group_.size(); ++rank) {
      equal.push_back(tensors::zeros({count_}));
      unequal.push_back(tensors::zeros({count_ + (rank == 0)}));
    }
    const LocalTensor own = unequal[static_cast<std::size_t>(group_.rank())].clone();
    const std::vector<LocalTensor> none;
    expect(OpKind::all_reduce, {one}, {one}, [&] { group_.all_reduce(one); });
    expect(OpKind::reduce, {one}, at_root({one}), [&] { group_.reduce(one, kRoot); });
    expect(OpKind::broadcast, at_root({one}), is_root_ ? none : std::vector{one},
           [&] { group_.broadcast(one, kRoot); });
    expect(OpKind::all_gather, {own}, unequal, [&] { group_.all_gather(unequal, own); });
    expect(OpKind::gather, {one}, at_root(equal),
           [&] { group_.gather(one, at_root(equal), kRoot); });
    expect(OpKind::scatter, at_root(equal), {one},
           [&] { group_.scatter(one, at_root(equal), kRoot); });
    expect(OpKind::reduce_scatter, unequal, {own}, [&] { group_.reduce_scatter(own, unequal); });
    std::vector<LocalTensor> got;
    for (int rank = 0; rank < group_.size(); ++rank) got.push_back(tensors::zeros({count_}));
    expect(OpKind::all_to_all, equal, got, [&] { group_.all_to_all(got, equal); });
    expect(OpKind::barrier, none, none, [&] { group_.barrier(); });
  }

 private:
  std::vector<LocalTensor> at_root(const std::vector<LocalTensor>& tensors) const {
    return is_root_ ? tensors : std::vector<LocalTensor>();
  }
  template <typename Run>
  void expect(OpKind kind, const std::vector<LocalTensor>& inputs,
              const std::vector<LocalTensor>& outputs, Run run) {
    const bool has_root = kind == OpKind::reduce || kind == OpKind::broadcast ||
                          kind == OpKind::gather || kind == OpKind::scatter;
    const auto told = group_.bytes_to_send({.kind = kind,
                                            .dtype = tensors::DType::f32,
                                            .root = has_root ? kRoot : -1,
                                            .inputs = counts_of(inputs),
                                            .outputs = counts_of(outputs)});
    ASSERT_TRUE(told);
    const std::int64_t before = bytes_sent(group_);
    run();
    EXPECT_EQ(bytes_sent(group_) - before, *told)
        << op_kind_name(kind) << " of " << count_ << " elements, rank " << group_.rank();
  }

  const ProcessGroup& group_;
  const std::int64_t count_;
  const bool is_root_;
};

void expect_told(int ranks, const test::RankOptions& options) {
  test::run_ranks(ranks, options, [](const ProcessGroup& group) {
    // Of posts, of stages and messages, in pieces.
    for (const std::int64_t count : {0, 1, 7, 1000, 4097, 20'001, 300'001})
      Calls(group, count).expect_all_told();
  });
}

TEST(PlannedBytesTest, RanksThatShareMemorySendWhatIsTold) {
  for (const int ranks : {2, 3, 4, 8}) expect_told(ranks, {});
}

TEST(PlannedBytesTest, RanksThatAreConnectedByTcpSendWhatIsTold) {
  for (const int ranks : {2, 3, 5}) expect_told(ranks, {.transport = Transport::tcp});
}

TEST(PlannedBytesTest, BetweenMachinesWhatIsPassedOnIsToldAsWell) {
  for (const std::vector<int>& machines :
       std::vector<std::vector<int>>{{2, 2}, {3, 1}, {1, 1, 2}, {2, 3}}) {
    int ranks = 0;
    for (const int count : machines) ranks += count;
    expect_told(ranks, {.machines = machines});
  }
}

TEST(PlannedBytesTest, OfSomeRanksItIsToldBeforeTheirGroupIsMade) {
  test::run_ranks(4, {.machines = {2, 2}}, [](const ProcessGroup& group) {
    const std::vector<int> members = group.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3};
    const PlannedCall call{.kind = OpKind::all_reduce, .inputs = {1000}, .outputs = {1000}};
    PlannedCall of_members = call;
    of_members.members = members;
    const auto told = group.bytes_to_send(of_members);
    EXPECT_EQ(told, 4000);
    EXPECT_NE(told, group.bytes_to_send(call));
    EXPECT_EQ(told, bytes_on_one_machine(call, group.rank() % 2, 2));
    EXPECT_EQ(group.subgroup(members, "pair").bytes_to_send(call), told);
  });
}

TEST(PlannedBytesTest, WhatIsNoCallIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const auto refusal = [&](const PlannedCall& call) -> std::string {
      try {
        group.bytes_to_send(call);
      } catch (const base::Error& error) {
        EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
        return error.what();
      }
      return "";
    };
    using testing::HasSubstr;
    EXPECT_THAT(refusal({.kind = OpKind::all_reduce}), HasSubstr("0 inputs and 0 outputs"));
    EXPECT_THAT(refusal({.kind = OpKind::reduce, .root = 2, .inputs = {1}}),
                HasSubstr("root 2 of 2 ranks"));
    EXPECT_THAT(refusal({.kind = OpKind::send, .inputs = {1}}), HasSubstr("no collective"));
    EXPECT_THAT(refusal({.kind = OpKind::all_reduce, .inputs = {-1}, .outputs = {-1}}),
                HasSubstr("less than no elements"));
    EXPECT_THAT(refusal({.kind = OpKind::barrier, .members = {1 - group.rank()}}),
                HasSubstr("members of a planned call"));
  });
}

// Else it would send half of its elements, and as many results.
TEST(PlannedBytesTest, OfTwoRanksTheRootCombinesAll) {
  test::run_ranks(2, {.transport = Transport::tcp}, [](const ProcessGroup& group) {
    constexpr std::int64_t kCount = 1 << 20;
    const LocalTensor tensor = tensors::ones({kCount});
    const std::int64_t before = bytes_sent(group);
    group.reduce(tensor, kRoot);
    EXPECT_EQ(bytes_sent(group) - before, group.rank() == kRoot ? 0 : 4 * kCount);
    if (group.rank() == kRoot) {
      EXPECT_TRUE(tensors::equal(tensor, tensors::full({kCount}, 2)));
    }
  });
}

}  // namespace
}  // namespace dtrun::collectives
