// What a group's calls refuse, and what they tell the peers: the tensor forms, messages, timeouts,
// calls after the end. Their results are the conformance suite's.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tensors::DType;
using tensors::LocalTensor;
using tensors::ones;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::contains;
using testing_support::error_of;

void refuses(const std::function<void()>& call, const std::string& text) {
  const std::optional<Error> error = error_of(call);
  ASSERT_TRUE(error.has_value()) << "accepted: " << text;
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << error->what();
  EXPECT_TRUE(contains(error->what(), text)) << error->what();
}

/// A tensor that says it is on a GPU; its elements are never looked at.
LocalTensor on_gpu() {
  static float element = 0;
  return LocalTensor(
      tensors::Storage::wrap(&element, sizeof(element), {tensors::DeviceType::cuda, 0}, [] {}),
      DType::f32, {1}, {1});
}

TEST(TensorFormsTest, WrongShapesAndSplitsAreNamed) {
  // Alone in a group there is nobody to poison it for.
  run_ranks(1, [](const ProcessGroup& group) {
    const LocalTensor row = ones({2, 3});
    refuses(
        [&] {
          group.all_gather_into_tensor(ones({3, 2}), row);
        },
        "the output has the shape [3, 2], and the input [2, 3] in a group of 1");
    refuses(
        [&] {
          group.all_gather_into_tensor(ones({2, 3}, {DType::f64}), row);
        },
        "the output is float64");
    refuses([&] { group.all_gather_into_tensor(LocalTensor(), row); },
            "the output is an undefined");
    refuses([&] { group.all_gather_into_tensor(ones({}), ones({})); }, "the shape []");
    refuses([&] { group.reduce_scatter_tensor(row, ones({6})); },
            "the input has the shape [6], and the output [2, 3]");
    refuses([&] { group.reduce_scatter_tensor(row, row, ReduceOp::bxor); }, "reduced by bxor");
    refuses([&] { group.all_to_all_single(ones({}), ones({})); }, "the input has no dims");
    refuses(
        [&] {
          group.all_to_all_single(row, ones({2, 4}));
        },
        "the output has the shape [2, 3], the input has [2, 4]");
    refuses([&] { group.all_to_all_single(row, ones({1, 3})); }, "this rank's own input has 3");
    refuses([&] { group.all_to_all_single(row, row, {}, {-2}); }, "input_split_sizes[0] is -2");
    refuses([&] { group.all_to_all_single(row, row, {1}, {}); },
            "output_split_sizes are 1 rows together, and the output has 2");
    refuses([&] { group.all_to_all_single(row, row, {3}, {}); },
            "output_split_sizes[0] is 3, and the output has 2 rows");
    refuses(
        [&] {
          group.all_to_all_single(row, row, {1, 1}, {});
        },
        "output_split_sizes has 2 entries, and the group 1 ranks");
    refuses([&] { group.all_reduce(on_gpu()); },
            "the tensor is on cuda:0, and group 'world' has no backend for it: its backend is "
            "'cpu'");
    refuses([&] { group.all_gather({on_gpu()}, ones({1})); },
            "outputs[0] is on cuda:0, and the call's first tensor on cpu");
    group.barrier();
  });
}

TEST(TensorFormsTest, UnevenRowsNeedSplits) {
  run_ranks(2, [](const ProcessGroup& group) {
    refuses([&] { group.all_to_all_single(ones({4}), ones({3})); },
            "the input has 3 rows, which 2 ranks cannot share evenly");
  });
}

TEST(TensorFormsTest, ATensorOnTheWrongDeviceFailsOnAllRanks) {
  const auto thrown = run_failing_ranks(3, {}, [](const ProcessGroup& group) {
    group.all_reduce(group.rank() == 1 ? on_gpu() : ones({1}));
    group.barrier();
  });
  ASSERT_TRUE(thrown[0] && thrown[1] && thrown[2]);
  EXPECT_EQ(thrown[1]->code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(contains(thrown[1]->text, "usable here are: cpu")) << thrown[1]->text;
  for (const std::size_t peer : {0, 2}) {
    EXPECT_EQ(thrown[peer]->code, ErrorCode::kPeerFailed) << thrown[peer]->text;
    EXPECT_TRUE(contains(thrown[peer]->text, "rejected its all_reduce #1")) << thrown[peer]->text;
  }
}

TEST(MessageRulesTest, WhatCannotBeSentHarmsNobody) {
  run_ranks(2, [](const ProcessGroup& group) {
    const int self = group.rank();
    const int other = 1 - self;
    const LocalTensor one = ones({1});
    const std::string name = std::to_string(self);
    refuses([&] { group.send(one, self); }, "rank " + name + " cannot send a message to itself");
    refuses([&] { group.irecv(one, self); },
            "rank " + name + " cannot receive a message from itself");
    refuses([&] { group.send(one, -1); }, "destination is -1");
    refuses([&] { group.recv(one, 2); }, "source is 2, and the group's ranks are 0 to 1");
    refuses([&] { group.send(one, other, ProcessGroup::kLastTag + 1); }, "the group's own");
    refuses([&] { group.recv(on_gpu(), other); }, "the tensor is on cuda:0");
    refuses([&] { group.recv(one, other, 0, {.timeout = milliseconds(0)}); },
            "the timeout of recv is 0 s");
    const P2POp good{P2POp::Kind::send, one, other, 5};
    // None of a batch is started where one is wrong.
    refuses(
        [&] {
          group.batch_isend_irecv({good, {P2POp::Kind::send, one, self, 0}});
        },
        "to itself");
    EXPECT_TRUE(group.batch_isend_irecv({}).empty());
    const LocalTensor received = tensors::zeros({1});
    const Work work = group.irecv(received, other, 5);
    group.send(tensors::full({1}, 9), other, 5);
    work.wait();
    EXPECT_EQ(received.item(), 9);
    group.barrier();
  });
}

TEST(MessageRulesTest, AMessageToARankThatHasEndedSaysSo) {
  for (const Transport transport : {Transport::automatic, Transport::tcp})
    for (const bool sends : {true, false}) {
      const auto thrown =
          run_failing_ranks(3, {.transport = transport}, [&](const ProcessGroup& group) {
            if (group.rank() != 0) return;
            // More than fits on the way: a send cannot end before the peer has.
            const LocalTensor tensor = ones({4 << 20});
            sends ? group.send(tensor, 1) : void(group.recv(tensor, 1));
          });
      ASSERT_TRUE(thrown[0].has_value());
      EXPECT_EQ(thrown[0]->code, ErrorCode::kPeerFailed) << thrown[0]->text;
      EXPECT_TRUE(thrown[0]->text.starts_with("rank 1 (pid ")) << thrown[0]->text;
      EXPECT_TRUE(contains(thrown[0]->text, "has left group 'world'")) << thrown[0]->text;
    }
}

TEST(ShutdownTest, EveryCallAfterItIsRefusedByItsName) {
  run_ranks(2, [](const ProcessGroup& group) {
    group.shutdown();
    group.shutdown();
    const auto refused = [&](const std::function<void()>& call, const std::string& name) {
      const std::optional<Error> error = error_of(call);
      ASSERT_TRUE(error.has_value()) << name;
      EXPECT_EQ(error->code(), ErrorCode::kAborted);
      EXPECT_TRUE(error->summary().starts_with(name + " in group 'world', which rank " +
                                               std::to_string(group.rank()) + " has left"))
          << error->what();
    };
    const LocalTensor one = ones({1});
    refused([&] { group.all_reduce(one); }, "all_reduce");
    refused([&] { group.barrier({.async = true}); }, "barrier");
    refused([&] { group.monitored_barrier(); }, "monitored_barrier");
    refused([&] { group.send(one, 1 - group.rank()); }, "send");
    refused([&] { group.irecv(one, -1); }, "recv");
    refused([&] { group.split({{0}}, "late"); }, "split");
    EXPECT_EQ(group.size(), 2);
  });
}

TEST(TimeoutTest, ATimeoutOfNothingIsRefusedAndThePeersAreTold) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    if (group.rank() == 0) group.all_reduce(ones({1}));
    group.all_reduce(ones({1}), ReduceOp::sum, {.timeout = seconds(-1)});
  });
  ASSERT_TRUE(thrown[0] && thrown[1]);
  EXPECT_EQ(thrown[1]->code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(contains(thrown[1]->text, "the timeout of all_reduce is negative"))
      << thrown[1]->text;
  EXPECT_EQ(thrown[0]->code, ErrorCode::kPeerFailed) << thrown[0]->text;
}

TEST(TimeoutTest, AMissingRankIsNamedOnEveryRankAndToldToTheLateOne) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    const auto thrown =
        run_failing_ranks(3, {.transport = transport}, [](const ProcessGroup& group) {
          if (group.rank() == 2) {
            // It comes when the others have given up.
            const std::optional<Error> error = error_of([&] { group.recv(ones({1}), 0); });
            ASSERT_TRUE(error.has_value());
          }
          group.all_reduce(ones({1}), ReduceOp::sum, {.timeout = milliseconds(500)});
        });
    for (const auto& mine : thrown) {
      ASSERT_TRUE(mine.has_value());
      EXPECT_EQ(mine->code, ErrorCode::kTimeout) << mine->text;
      EXPECT_TRUE(contains(mine->text, "all_reduce #1")) << mine->text;
      EXPECT_TRUE(contains(mine->text, "of group 'world' for rank 2")) << mine->text;
    }
  }
}

class OwnTimeoutTest : public testing::TestWithParam<std::string> {
 protected:
  static test::RankOptions options() {
    if (GetParam() == "tcp") return {.transport = Transport::tcp};
    if (GetParam() == "mixed") return {.machines = {1}};
    return {.backend = GetParam()};
  }
};

TEST_P(OwnTimeoutTest, AGroupsOwnCanBeChangedAndGoesToItsSplits) {
  const auto thrown = run_failing_ranks(3, options(), [](const ProcessGroup& group) {
    const std::optional<Error> error = error_of([&] { group.set_timeout(milliseconds(0)); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(contains(error->what(), "the timeout of group 'world' is 0 s")) << error->what();
    group.set_timeout(milliseconds(500));
    const ProcessGroup all = group.split({{0, 1, 2}}, "all");
    EXPECT_EQ(all.timeout(), milliseconds(500));
    all.set_timeout(seconds(30));
    EXPECT_EQ(group.timeout(), milliseconds(500));
    if (group.rank() == 1) {
      // A call's own goes first: it comes when the others have given up.
      const std::optional<Error> late =
          error_of([&] { group.recv(ones({1}), 0, 0, {.timeout = seconds(60)}); });
      ASSERT_TRUE(late.has_value());
    }
    group.all_reduce(ones({1}));
  });
  for (const auto& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kTimeout) << mine->text;
    EXPECT_TRUE(contains(mine->text, "of group 'world' for rank 1")) << mine->text;
  }
}

INSTANTIATE_TEST_SUITE_P(, OwnTimeoutTest, testing::ValuesIn([] {
                           std::vector<std::string> names{"cpu", "tcp", "mixed"};
                           if (is_backend_available("gloo")) names.emplace_back("gloo");
                           return names;
                         }()),
                         [](const auto& tested) { return tested.param; });

TEST(PremulSumTest, AFactorIsNeededThereAndNowhereElse) {
  run_ranks(1, [](const ProcessGroup& group) {
    const LocalTensor row = ones({2, 3});
    refuses([&] { group.all_reduce(row, ReduceOp::premul_sum); }, "premul_sum has no factor");
    refuses([&] { group.all_reduce(row, ReduceOp::sum, {.factor = 2}); },
            "there is a factor, 2, for a call that is no premul_sum");
    refuses([&] { group.broadcast(row, 0, {.factor = 2}); }, "there is a factor, 2");
    refuses([&] { group.barrier({.factor = 0.5}); }, "there is a factor, 0.5");
    refuses([&] { group.all_reduce(ones({2}, {DType::i64}), ReduceOp::premul_sum, {.factor = 2}); },
            "int64 tensors cannot be reduced by premul_sum");
    // Alone, too.
    group.all_reduce(row, ReduceOp::premul_sum, {.factor = 3});
    EXPECT_EQ(row.to_vector(), std::vector<double>(6, 3));
  });
}

TEST(PremulSumTest, EachRanksFactorIsItsOwnAndTheInputsStay) {
  run_ranks(3, [](const ProcessGroup& group) {
    const double factor = group.rank() + 0.5;
    const CallOptions options{.factor = factor};
    for (const std::int64_t count : {4, 100000}) {
      const LocalTensor input = ones({count}), output = tensors::zeros({count});
      group.all_reduce_into_tensor(output, input, ReduceOp::premul_sum, options);
      EXPECT_EQ(output.to_vector(), std::vector<double>(static_cast<std::size_t>(count), 4.5));
      group.reduce(input, 1, ReduceOp::premul_sum, options);
      EXPECT_EQ(input.to_vector()[3], group.rank() == 1 ? 4.5 : 1);
      const LocalTensor whole = ones({3 * count});
      group.reduce_scatter_tensor(output, whole, ReduceOp::premul_sum, options);
      EXPECT_EQ(output.to_vector()[0], 4.5);
      EXPECT_EQ(whole.to_vector(), std::vector<double>(static_cast<std::size_t>(3 * count), 1));
    }
    // Rounded to the dtype, as NCCL does it: 1 + 2^-9 is 1 in bf16.
    const LocalTensor halves = ones({2}, {DType::bf16});
    group.all_reduce(halves, ReduceOp::premul_sum, {.factor = 1 + 1.0 / 512});
    EXPECT_EQ(halves.to_vector(), (std::vector<double>{3, 3}));
  });
}

TEST(PremulSumTest, WhoSumsWithoutAFactorDisagrees) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    if (group.rank() == 0) group.all_reduce(ones({4}));
    group.all_reduce(ones({4}), ReduceOp::premul_sum, {.factor = 1});
  });
  for (const auto& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kDisagreement) << mine->text;
    EXPECT_TRUE(contains(mine->text, "premul_sum)")) << mine->text;
  }
}

TEST(WorkTest, AnOperationThatFailsKeepsItsError) {
  run_ranks(2, [](const ProcessGroup& group) {
    const LocalTensor tensor = ones({4});
    const Work work = group.rank() == 0 ? group.all_reduce(tensor, ReduceOp::sum, {.async = true})
                                        : group.all_reduce(tensor, ReduceOp::max, {.async = true});
    const std::optional<Error> error = error_of([&] { work.wait(); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kDisagreement);
    EXPECT_TRUE(work.is_completed());
    ASSERT_TRUE(work.exception() != nullptr);
    EXPECT_THROW(std::rethrow_exception(work.exception()), Error);
    // Also for a copy, and again.
    const Work copy = work;
    EXPECT_THROW(copy.wait(), Error);
  });
}

TEST(WorkTest, AWaitOfNoTimeEndsAtOnce) {
  run_ranks(2, [](const ProcessGroup& group) {
    const LocalTensor tensor = ones({4});
    if (group.rank() == 0) {
      const Work work = group.irecv(tensor, 1);
      const std::optional<Error> error =
          error_of([&] { work.wait(Deadline::after(Deadline::Duration::zero())); });
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kTimeout);
      EXPECT_TRUE(contains(error->what(), "is not done yet")) << error->what();
      group.barrier();
      work.wait();
    } else {
      group.barrier();
      group.send(tensor, 0);
    }
  });
  EXPECT_TRUE(Work().is_completed());
}

TEST(MemoryTest, ARankWithoutMemoryForItsCallTellsThePeersWhoWait) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer ends the process that asks for so much memory";
#endif
  const auto thrown = test::run_failing_ranks(3, {}, [](const ProcessGroup& group) {
    // Made contiguous it would take 4 TiB.
    const LocalTensor huge = tensors::ones({1}).expand({std::int64_t{1} << 40});
    if (group.rank() == 1) {
      group.reduce(huge, 0);
    } else {
      group.barrier();
    }
  });
  for (const auto& mine : thrown) ASSERT_TRUE(mine.has_value());
  for (const std::size_t peer : {0, 2}) {
    EXPECT_EQ(thrown[peer]->code, ErrorCode::kPeerFailed) << thrown[peer]->text;
    EXPECT_TRUE(contains(thrown[peer]->text, "rejected its reduce #1")) << thrown[peer]->text;
  }
}

}  // namespace
}  // namespace dtrun::collectives
