// Outputs that lie where inputs do: in place, which is right, and elsewhere, which is refused.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtrun/collectives/agreed_exchange.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::ErrorCode;
using tensors::LocalTensor;
using tensors::ones;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::contains;

using List = std::vector<LocalTensor>;

/// One part after the other of one tensor, which is the sum of them.
struct PartsOfOne {
  PartsOfOne(int parts, std::int64_t count) : whole(tensors::zeros({parts * count})) {
    for (int part = 0; part < parts; ++part) list.push_back(whole.narrow(0, part * count, count));
  }
  LocalTensor whole;
  List list;
};

/// A call on two ranks in which rank 1's output lies in an input, but not in its own part's. Rank
/// 0's tensors are apart.
struct OverlappingCall {
  std::string text;  ///< of the error on rank 1
  std::function<void(const ProcessGroup& group, const CallOptions& options)> make;
};

std::vector<OverlappingCall> overlapping_calls(std::int64_t count) {
  const auto part = [count](const ProcessGroup& group, const LocalTensor& overlapping) {
    return group.rank() == 1 ? overlapping : ones({count});
  };
  const auto at_root = [](const ProcessGroup& group, const List& list) {
    return group.rank() == 1 ? list : List();
  };
  return {
      {"the input and the output of rank 0 of all_gather",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count);
         group.all_gather(all.list, part(group, all.list[0]), options).wait();
       }},
      {"the input and the output of rank 0 of all_gather",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count);
         const LocalTensor input = all.whole.narrow(0, count - 1, count);
         group.all_gather_into_tensor(all.whole, part(group, input), options).wait();
       }},
      {"the input and the output of rank 0 of gather",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count);
         group.gather(part(group, all.list[0]), at_root(group, all.list), 1, options).wait();
       }},
      {"the input for rank 0 and the output of scatter",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count);
         group.scatter(part(group, all.list[0]), at_root(group, all.list), 1, options).wait();
       }},
      {"the input for rank 0 and the output of reduce_scatter",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count);
         group.reduce_scatter(part(group, all.list[0]), all.list, ReduceOp::sum, options).wait();
       }},
      {"the input for rank 0 and the output of reduce_scatter",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count);
         const LocalTensor output = part(group, all.list[0]);
         group.reduce_scatter_tensor(output, all.whole, ReduceOp::sum, options).wait();
       }},
      {"the input for rank 0 and the output of rank 1 of all_to_all",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count), others(2, count);
         group.all_to_all({others.list[0], part(group, all.list[0])}, all.list, options).wait();
       }},
      {"the input for rank 0 and the output of rank 0 of all_to_all",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count), others(2, count);
         const List& outputs = group.rank() == 1 ? all.list : others.list;
         group.all_to_all(outputs, all.list, options).wait();
       }},
      {"the input for rank 0 and the output of rank 0 of all_to_all",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count), others(2, count);
         const LocalTensor output = group.rank() == 1 ? all.whole : others.whole;
         group.all_to_all_single(output, all.whole, {}, {}, options).wait();
       }},
      {"the input for rank 0 and the output of rank 0 of all_to_all",
       [=](const ProcessGroup& group, const CallOptions& options) {
         const PartsOfOne all(2, count);
         const std::vector<int> peers = {1 - group.rank()};
         const List outputs = {all.list[0]}, inputs = {part(group, all.list[0])};
         const AgreedExchange exchange{
             .plan = 7, .outputs = {peers, outputs}, .inputs = {peers, inputs}};
         group.all_to_all_agreed(exchange, options).wait();
       }},
  };
}

TEST(OverlapTest, AnOutputThatLiesInAnInputIsRefusedOnAllRanks) {
  for (const std::int64_t count : {2, 300000})
    for (const bool async : {false, true})
      for (const OverlappingCall& call : overlapping_calls(count)) {
        const auto thrown = run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
          call.make(group, {.async = async});
          group.barrier();
        });
        ASSERT_TRUE(thrown[0] && thrown[1]) << call.text << ", " << count;
        EXPECT_EQ(thrown[1]->code, ErrorCode::kInvalidArgument) << thrown[1]->text;
        EXPECT_TRUE(contains(thrown[1]->text, call.text + " overlap in memory")) << thrown[1]->text;
        EXPECT_EQ(thrown[0]->code, ErrorCode::kPeerFailed) << thrown[0]->text;
      }
}

/// Parts whose elements say who gives them to whom.
PartsOfOne filled(const ProcessGroup& group, std::int64_t count) {
  PartsOfOne all(group.size(), count);
  for (int peer = 0; peer < group.size(); ++peer)
    all.list[static_cast<std::size_t>(peer)].fill_(10 * group.rank() + peer);
  return all;
}

void expect_filled(const LocalTensor& part, double value, const char* what) {
  EXPECT_EQ(part[0].item(), value) << what;
  EXPECT_EQ(part[part.numel() - 1].item(), value) << what;
}

TEST(OverlapTest, AnOwnPartMayBeOneTensorOnBothSides) {
  for (const std::int64_t count : {2, 5000, 400000})
    for (const Transport transport : {Transport::automatic, Transport::tcp})
      run_ranks(3, {.transport = transport}, [&](const ProcessGroup& group) {
        const int rank = group.rank();
        const auto own = static_cast<std::size_t>(rank);
        PartsOfOne all = filled(group, count);
        group.all_gather_into_tensor(all.whole, all.list[own]);
        for (int peer = 0; peer < 3; ++peer)
          expect_filled(all.list[static_cast<std::size_t>(peer)], 11 * peer, "all_gather");
        all = filled(group, count);
        group.gather(all.list[own], rank == 1 ? all.list : List(), 1);
        for (int peer = 0; rank == 1 && peer < 3; ++peer)
          expect_filled(all.list[static_cast<std::size_t>(peer)], 11 * peer, "gather");
        all = filled(group, count);
        group.scatter(all.list[own], rank == 1 ? all.list : List(), 1);
        expect_filled(all.list[own], 10 + rank, "scatter");
        all = filled(group, count);
        group.reduce_scatter_tensor(all.list[own], all.whole);
        expect_filled(all.list[own], 30 + 3 * rank, "reduce_scatter");
        all = filled(group, count);
        PartsOfOne to = filled(group, count);
        to.list[own] = all.list[own];
        group.all_to_all(to.list, all.list);
        for (int peer = 0; peer < 3; ++peer)
          expect_filled(to.list[static_cast<std::size_t>(peer)], 10 * peer + rank, "all_to_all");
      });
}

}  // namespace
}  // namespace dtrun::collectives
