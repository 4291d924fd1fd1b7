// Ranks that call different things: every rank must get an error that names both sides, within a
// second, whatever the operations' message edges are.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/flat_tensors.h"
#include "support/promptness.h"
#include "support/rank_threads.h"

namespace dtrun::collectives {
namespace {

using base::ErrorCode;
using tensors::DType;
using tensors::LocalTensor;
using test::run_failing_ranks;
using test::Thrown;
using Body = void (*)(const ProcessGroup&);
using test::flat_ones;

/// Goes on after the call: a rank whose own call was over before the others'
/// disagreed learns of it in its next one.
void call_and_go_on(const ProcessGroup& group, Body body) {
  body(group);
  group.barrier();
  group.barrier();
}

struct Mismatch {
  const char* name;
  Body most;
  Body odd;            ///< the last rank's
  const char* differ;  ///< what the message must say
};

std::vector<LocalTensor> list(const ProcessGroup& group, std::int64_t count) {
  std::vector<LocalTensor> tensors;
  for (int rank = 0; rank < group.size(); ++rank) tensors.push_back(flat_ones(count));
  return tensors;
}

/// Under a plan that all ranks know each gives its right neighbour two elements.
void shift(const ProcessGroup& group, std::uint64_t agreed) {
  std::vector<LocalTensor> inputs = list(group, 0), outputs = list(group, 0);
  const int size = group.size(), rank = group.rank();
  inputs[static_cast<std::size_t>((rank + 1) % size)] = flat_ones(2);
  outputs[static_cast<std::size_t>((rank + size - 1) % size)] = flat_ones(2);
  group.all_to_all(outputs, inputs, {.agreed = agreed});
}
void keep_all(const ProcessGroup& group, std::uint64_t agreed) {
  group.all_to_all(list(group, 0), list(group, 0), {.agreed = agreed});
}

const Mismatch kMismatches[] = {
    {"AgreedAllToAll", [](const ProcessGroup& g) { shift(g, 7); },
     [](const ProcessGroup& g) { shift(g, 8); }, "the shape"},
    {"AgreedAllToAllThatSendsNothing", [](const ProcessGroup& g) { shift(g, 7); },
     [](const ProcessGroup& g) { keep_all(g, 8); }, "the shape"},
    {"AgreedAllToAllThatExpectsNothing", [](const ProcessGroup& g) { keep_all(g, 7); },
     [](const ProcessGroup& g) { shift(g, 8); }, "the shape"},
    {"ShapeOfAsManyElements",
     [](const ProcessGroup& g) {
       g.all_reduce(tensors::ones({2, 3}));
     },
     [](const ProcessGroup& g) {
       g.all_reduce(tensors::ones({3, 2}));
     },
     "the shape"},
    {"BroadcastAgainstAllReduce", [](const ProcessGroup& g) { g.all_reduce(flat_ones(4)); },
     [](const ProcessGroup& g) { g.broadcast(flat_ones(4), g.size() - 1); }, "the operation"},
    {"BroadcastFromAnotherAgainstAllReduce",
     [](const ProcessGroup& g) { g.all_reduce(flat_ones(4)); },
     [](const ProcessGroup& g) { g.broadcast(flat_ones(4), 0); }, "the operation"},
    {"GatherAgainstScatter",
     [](const ProcessGroup& g) {
       g.gather(flat_ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](const ProcessGroup& g) { g.scatter(flat_ones(2), {}, 0); }, "the operation"},
    {"ScatterAgainstGather",
     [](const ProcessGroup& g) {
       g.scatter(flat_ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](const ProcessGroup& g) { g.gather(flat_ones(2), {}, 0); }, "the operation"},
    {"BarrierAgainstReduce", [](const ProcessGroup& g) { g.barrier(); },
     [](const ProcessGroup& g) { g.reduce(flat_ones(1), 0); }, "the operation"},
    {"Dtype", [](const ProcessGroup& g) { g.all_reduce(flat_ones(4)); },
     [](const ProcessGroup& g) { g.all_reduce(flat_ones(4, DType::i32)); }, "the dtype"},
    {"ReduceOp", [](const ProcessGroup& g) { g.all_reduce(flat_ones(4)); },
     [](const ProcessGroup& g) { g.all_reduce(flat_ones(4), ReduceOp::max); }, "the reduce op"},
    {"Count", [](const ProcessGroup& g) { g.all_reduce(flat_ones(4)); },
     [](const ProcessGroup& g) { g.all_reduce(flat_ones(5)); }, "the element counts"},
    {"EmptyAgainstSome", [](const ProcessGroup& g) { g.all_reduce(flat_ones(0)); },
     [](const ProcessGroup& g) { g.all_reduce(flat_ones(5)); }, "the element counts"},
    {"LargeAgainstSmall", [](const ProcessGroup& g) { g.all_reduce(flat_ones(500000)); },
     [](const ProcessGroup& g) { g.all_reduce(flat_ones(3)); }, "the element counts"},
    {"Root", [](const ProcessGroup& g) { g.broadcast(flat_ones(4), 0); },
     [](const ProcessGroup& g) { g.broadcast(flat_ones(4), g.size() - 1); }, "the root"},
    {"ReduceRoot", [](const ProcessGroup& g) { g.reduce(flat_ones(4), 0); },
     [](const ProcessGroup& g) { g.reduce(flat_ones(4), g.size() - 1); }, "the root"},
    {"GatherSize",
     [](const ProcessGroup& g) {
       g.gather(flat_ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](const ProcessGroup& g) { g.gather(flat_ones(3), {}, 0); },
     "sent 12 bytes, rank 0 expected 8"},
    {"AllGatherSizes", [](const ProcessGroup& g) { g.all_gather(list(g, 2), flat_ones(2)); },
     [](const ProcessGroup& g) { g.all_gather(list(g, 3), flat_ones(3)); }, "the element counts"},
    {"Order",
     [](const ProcessGroup& g) {
       g.all_reduce(flat_ones(4));
       g.barrier();
     },
     [](const ProcessGroup& g) {
       g.barrier();
       g.all_reduce(flat_ones(4));
     },
     "the operation"},
    {"OneCallTooMany", [](const ProcessGroup& g) { g.broadcast(flat_ones(4), 0); },
     [](const ProcessGroup& g) {
       g.broadcast(flat_ones(4), 0);
       g.broadcast(flat_ones(4), 0);
     },
     "the operation"},
    {"ReduceScatterSizes",
     [](const ProcessGroup& g) { g.reduce_scatter(flat_ones(2), list(g, 2)); },
     [](const ProcessGroup& g) { g.reduce_scatter(flat_ones(3), list(g, 3)); },
     "the element counts"},
    {"ReduceScatterOp", [](const ProcessGroup& g) { g.reduce_scatter(flat_ones(2), list(g, 2)); },
     [](const ProcessGroup& g) { g.reduce_scatter(flat_ones(2), list(g, 2), ReduceOp::min); },
     "the reduce op"},
    {"AllGatherIntoTensorSize",
     [](const ProcessGroup& g) { g.all_gather_into_tensor(flat_ones(2 * g.size()), flat_ones(2)); },
     [](const ProcessGroup& g) { g.all_gather_into_tensor(flat_ones(3 * g.size()), flat_ones(3)); },
     "the element counts"},
    {"AllToAllSingleSize",
     [](const ProcessGroup& g) {
       g.all_to_all_single(flat_ones(2 * g.size()), flat_ones(2 * g.size()));
     },
     [](const ProcessGroup& g) {
       g.all_to_all_single(flat_ones(4 * g.size()), flat_ones(4 * g.size()));
     },
     " bytes, rank "},
    {"ScatterDtype",
     [](const ProcessGroup& g) {
       g.scatter(flat_ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](const ProcessGroup& g) { g.scatter(flat_ones(2, DType::i64), {}, 0); }, "the dtype"},
    {"MonitoredBarrierAgainstBarrier", [](const ProcessGroup& g) { g.monitored_barrier(); },
     [](const ProcessGroup& g) { g.barrier(); }, "the operation"},
    {"AllReduceAgainstMonitoredBarrier", [](const ProcessGroup& g) { g.all_reduce(flat_ones(4)); },
     [](const ProcessGroup& g) { g.monitored_barrier(); }, "the operation"},
    {"SplitLists",
     [](const ProcessGroup& g) {
       g.split({{0, 1}}, "a");
     },
     [](const ProcessGroup& g) { g.split({{0}}, "a"); }, "the element counts"},
};

/// What agrees before. After calls of the same kinds, rings are there: these go the short way.
enum class Before { nothing, messages };

struct Case {
  Mismatch mismatch;
  int size;
  Transport transport;
  Before before;
};

void call_by_messages(const ProcessGroup& group) {
  const LocalTensor output = flat_ones(group.size());
  for (int call = 0; call < 3; ++call) {
    group.all_to_all_single(output, flat_ones(group.size()));
    group.barrier();
  }
}

class DisagreementTest : public testing::TestWithParam<Case> {};

TEST_P(DisagreementTest, EveryRankIsToldOfBothSidesWithinASecond) {
  const Case& now = GetParam();
  std::vector<std::optional<Thrown>> thrown;
  testing_support::expect_promptness(std::chrono::seconds(1), [&] {
    const auto start = base::Deadline::Clock::now();
    thrown =
        run_failing_ranks(now.size, {.transport = now.transport}, [&](const ProcessGroup& group) {
          if (now.before == Before::messages) call_by_messages(group);
          const bool odd = group.rank() == now.size - 1;
          call_and_go_on(group, odd ? now.mismatch.odd : now.mismatch.most);
        });
    return base::Deadline::Clock::now() - start;
  });
  for (const std::optional<Thrown>& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kDisagreement) << mine->text;
    EXPECT_NE(mine->text.find(now.mismatch.differ), std::string::npos) << mine->text;
    EXPECT_NE(mine->text.find("rank " + std::to_string(now.size - 1) + " called"),
              std::string::npos)
        << mine->text;
    EXPECT_NE(mine->text.find("disagreement_test.cc:"), std::string::npos) << mine->text;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Mismatch& mismatch : kMismatches)
    for (const int size : {2, 4})
      for (const Transport transport : {Transport::automatic, Transport::tcp})
        all.push_back({mismatch, size, transport, Before::nothing});
  for (const Mismatch& mismatch : kMismatches)
    all.push_back({mismatch, 3, Transport::automatic, Before::messages});
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  return std::string(tested.param.mismatch.name) +
         (tested.param.before == Before::messages ? "AfterMessages" : "") +
         (tested.param.transport == Transport::tcp ? "Tcp" : "Automatic") +
         std::to_string(tested.param.size);
}
INSTANTIATE_TEST_SUITE_P(All, DisagreementTest, testing::ValuesIn(cases()), case_name);

// Of so many calls ago no history tells.
TEST(PassedByTest, WhoIsFarAheadAndHasSentNothingIsNamed) {
  std::promise<void> told;
  const std::shared_future<void> after = told.get_future().share();
  const auto thrown = run_failing_ranks(3, {}, [&](const ProcessGroup& group) {
    if (group.rank() == 0) {
      try {
        shift(group, 7);
      } catch (const base::Error&) {
        told.set_value();
        throw;
      }
    }
    if (group.rank() == 1) shift(group, 7);
    for (int call = 0; call < 200 && group.rank() == 2; ++call) keep_all(group, 8);
    after.wait();
    group.barrier();
  });
  for (const std::optional<Thrown>& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kDisagreement) << mine->text;
    EXPECT_NE(mine->text.find("rank 0 waits in all_to_all #1 (f32) at disagreement_test.cc:"),
              std::string::npos)
        << mine->text;
    EXPECT_NE(mine->text.find("for rank 2, which is past that call and has sent nothing"),
              std::string::npos)
        << mine->text;
  }
}

TEST(RejectionTest, ACallThatOneRankRejectsFailsOnAll) {
  const auto thrown = run_failing_ranks(3, {}, [](const ProcessGroup& group) {
    if (group.rank() == 1) {
      group.all_gather({flat_ones(1)}, flat_ones(1));
    } else {
      group.all_gather(list(group, 1), flat_ones(1));
      group.barrier();
    }
  });
  ASSERT_TRUE(thrown[0] && thrown[1] && thrown[2]);
  EXPECT_EQ(thrown[1]->code, ErrorCode::kInvalidArgument);
  EXPECT_NE(thrown[1]->text.find("outputs has 1 tensors, and the group 3 ranks"),
            std::string::npos);
  for (const int peer : {0, 2}) {
    const Thrown& mine = *thrown[static_cast<std::size_t>(peer)];
    EXPECT_EQ(mine.code, ErrorCode::kPeerFailed) << mine.text;
    EXPECT_TRUE(mine.text.starts_with("rank 1 (pid ")) << mine.text;
    EXPECT_NE(mine.text.find("rejected its all_gather #1"), std::string::npos) << mine.text;
  }
}

TEST(RejectionTest, AMessageToNobodyHarmsNobody) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    EXPECT_THROW(group.send(flat_ones(1), 2), base::Error);
    EXPECT_THROW(group.recv(flat_ones(1), -2), base::Error);
    EXPECT_THROW(group.isend(LocalTensor(), 0), base::Error);
    group.barrier();
  });
}

TEST(RejectionTest, EveryWrongArgumentIsNamed) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    const auto rejected = [](auto call, const std::string& text) {
      try {
        call();
        ADD_FAILURE() << "accepted: " << text;
      } catch (const base::Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      }
    };
    rejected([&] { group.all_reduce(LocalTensor()); }, "the tensor is an undefined tensor");
    rejected([&] { group.all_reduce(flat_ones(1), ReduceOp::bor); }, "cannot be reduced by bor");
    rejected([&] { group.all_reduce(flat_ones(1, DType::boolean), ReduceOp::avg); }, "no mean");
    rejected([&] { group.broadcast(flat_ones(1), 1); }, "source is 1");
    rejected([&] { group.reduce(flat_ones(1), -1); }, "destination is -1");
    rejected([&] { group.gather(flat_ones(1), {flat_ones(2)}, 0); }, "the input has 1 elements");
    rejected([&] { group.scatter(flat_ones(1), {flat_ones(1, DType::f64)}, 0); },
             "inputs[0] is float64");
    rejected([&] { group.all_to_all({}, {}); }, "inputs has 0 tensors");
    rejected([&] { group.reduce_scatter(flat_ones(1), {}); }, "inputs has 0 tensors");
    rejected([&] { group.split({{0}, {0}}, "twice"); }, "stands twice");
    rejected([&] { group.split({{1}}, "far"); }, "a rank of the split is 1");
    // Alone in a group there is nobody to poison it for.
    group.barrier();
  });
  test::run_ranks(2, [](const ProcessGroup& group) {
    const int other = 1 - group.rank();
    EXPECT_THROW(group.gather(flat_ones(1), {flat_ones(1)}, other), base::Error);
  });
}

class MessageTest : public testing::TestWithParam<int> {};
/// How many messages agree before.
INSTANTIATE_TEST_SUITE_P(Before, MessageTest, testing::Values(0, 3));

TEST_P(MessageTest, ASendAndAReceiveOfDifferentSizeFailOnBothSides) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    for (int call = 0; call < GetParam(); ++call) {
      if (group.rank() == 0) {
        group.send(flat_ones(4), 1);
      } else {
        group.recv(flat_ones(4), 0);
      }
    }
    if (group.rank() == 0) {
      group.send(flat_ones(4), 1);
    } else {
      group.recv(flat_ones(3), 0);
    }
    group.barrier();
  });
  for (const std::optional<Thrown>& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kDisagreement);
    const std::string number = std::to_string(GetParam() + 1);
    EXPECT_NE(mine->text.find("rank 0 called send #" + number + " (f32 x 4, peer 1)"),
              std::string::npos)
        << mine->text;
    EXPECT_NE(mine->text.find("rank 1 called recv #" + number + " (f32 x 3, peer 0)"),
              std::string::npos)
        << mine->text;
    EXPECT_NE(mine->text.find("the element counts"), std::string::npos) << mine->text;
  }
}

TEST(PoisonTest, LaterCallsThrowTheFirstErrorAndOtherGroupsLive) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const ProcessGroup other = group.split({{0, 1}}, "other");
    std::string first;
    try {
      group.all_reduce(flat_ones(group.rank() + 1));
      ADD_FAILURE() << "different counts went through";
    } catch (const base::Error& error) {
      first = error.what();
    }
    for (int again = 0; again < 2; ++again) {
      try {
        group.barrier();
        ADD_FAILURE() << "a poisoned group worked";
      } catch (const base::Error& error) {
        EXPECT_EQ(error.what(), first);
      }
      EXPECT_THROW(group.isend(flat_ones(1), 0), base::Error);
    }
    other.barrier();
  });
}

}  // namespace
}  // namespace dtrun::collectives
