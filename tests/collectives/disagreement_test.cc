// Ranks that call different things: every rank must get an error that names both sides, within a
// second, whatever the operations' message edges are.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "dtrun/collectives/agreed_exchange.h"
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
using test::flat_ones;
using test::run_failing_ranks;
using test::Thrown;

using List = std::vector<LocalTensor>;

enum class Mode { blocking, async };

/// Calls of a group in one of the two modes. All but the split and the monitored barrier, which
/// block.
class Caller {
 public:
  /// @param scale what the counts of its tensors are multiplied by
  Caller(const ProcessGroup& group, Mode mode, std::int64_t scale = 1)
      : group_(group), options_{.async = mode == Mode::async}, scale_(scale) {}
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  std::int64_t scale() const { return scale_; }
  LocalTensor ones(std::int64_t count, DType dtype = DType::f32) const {
    return flat_ones(count * scale_, dtype);
  }

  void all_reduce(const LocalTensor& tensor, ReduceOp op = ReduceOp::sum) {
    works_.push_back(group_.all_reduce(tensor, op, options_));
  }
  void broadcast(const LocalTensor& tensor, int root) {
    works_.push_back(group_.broadcast(tensor, root, options_));
  }
  void reduce(const LocalTensor& tensor, int root) {
    works_.push_back(group_.reduce(tensor, root, ReduceOp::sum, options_));
  }
  void gather(const LocalTensor& input, const List& outputs, int root) {
    works_.push_back(group_.gather(input, outputs, root, options_));
  }
  void scatter(const LocalTensor& output, const List& inputs, int root) {
    works_.push_back(group_.scatter(output, inputs, root, options_));
  }
  void all_gather(const List& outputs, const LocalTensor& input) {
    works_.push_back(group_.all_gather(outputs, input, options_));
  }
  void all_gather_into_tensor(const LocalTensor& output, const LocalTensor& input) {
    works_.push_back(group_.all_gather_into_tensor(output, input, options_));
  }
  void reduce_scatter(const LocalTensor& output, const List& inputs, ReduceOp op = ReduceOp::sum) {
    works_.push_back(group_.reduce_scatter(output, inputs, op, options_));
  }
  void all_to_all_agreed(const AgreedExchange& exchange) {
    works_.push_back(group_.all_to_all_agreed(exchange, options_));
  }
  void all_to_all_single(const LocalTensor& output, const LocalTensor& input) {
    works_.push_back(group_.all_to_all_single(output, input, {}, {}, options_));
  }
  void barrier() { works_.push_back(group_.barrier(options_)); }
  void monitored_barrier() { group_.monitored_barrier(); }
  void split(const std::vector<std::vector<int>>& lists) { group_.split(lists, "a"); }

  /// Goes on after the calls: a rank whose own call was over before the others' disagreed learns of
  /// it in its next one.
  void wait_and_go_on() {
    for (const Work& work : works_) work.wait();
    group_.barrier();
    group_.barrier();
  }
  /// Where a barrier goes by rounds, two ranks may hear of each other through others only. Here
  /// they do, and the others, whose own call may be over before that, learn of it in the next one.
  void hear_all() {
    for (int call = 0; call < 2; ++call)
      group_.all_to_all_single(flat_ones(size()), flat_ones(size()));
  }

 private:
  const ProcessGroup& group_;
  const CallOptions options_;
  const std::int64_t scale_;
  std::vector<Work> works_;
};
using Body = void (*)(Caller&);

struct Mismatch {
  const char* name;
  Body most;
  Body odd;            ///< the last rank's
  const char* differ;  ///< what the message must say
};

std::vector<LocalTensor> list(const Caller& group, std::int64_t count) {
  std::vector<LocalTensor> tensors;
  for (int rank = 0; rank < group.size(); ++rank) tensors.push_back(group.ones(count));
  return tensors;
}

/// Under a plan that all ranks know each gives its right neighbour two elements.
void shift(Caller& group, std::uint64_t plan) {
  const int size = group.size(), right = (group.rank() + 1) % size,
            left = (group.rank() + size - 1) % size;
  const LocalTensor input = group.ones(2), output = group.ones(2);
  group.all_to_all_agreed(
      {.plan = plan, .outputs = {{&left, 1}, {&output, 1}}, .inputs = {{&right, 1}, {&input, 1}}});
}
void keep_all(Caller& group, std::uint64_t plan) {
  group.all_to_all_agreed({.plan = plan});
}

const Mismatch kMismatches[] = {
    {"AgreedAllToAll", [](Caller& g) { shift(g, 7); }, [](Caller& g) { shift(g, 8); }, "the shape"},
    {"AgreedAllToAllThatSendsNothing", [](Caller& g) { shift(g, 7); },
     [](Caller& g) { keep_all(g, 8); }, "the shape"},
    {"AgreedAllToAllThatExpectsNothing", [](Caller& g) { keep_all(g, 7); },
     [](Caller& g) { shift(g, 8); }, "the shape"},
    {"ShapeOfAsManyElements",
     [](Caller& g) {
       g.all_reduce(tensors::ones({2, 3 * g.scale()}));
     },
     [](Caller& g) {
       g.all_reduce(tensors::ones({3 * g.scale(), 2}));
     },
     "the shape"},
    {"BroadcastAgainstAllReduce", [](Caller& g) { g.all_reduce(g.ones(4)); },
     [](Caller& g) { g.broadcast(g.ones(4), g.size() - 1); }, "the operation"},
    {"BroadcastFromAnotherAgainstAllReduce", [](Caller& g) { g.all_reduce(g.ones(4)); },
     [](Caller& g) { g.broadcast(g.ones(4), 0); }, "the operation"},
    {"GatherAgainstScatter",
     [](Caller& g) {
       g.gather(g.ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](Caller& g) { g.scatter(g.ones(2), {}, 0); }, "the operation"},
    {"ScatterAgainstGather",
     [](Caller& g) {
       g.scatter(g.ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](Caller& g) { g.gather(g.ones(2), {}, 0); }, "the operation"},
    {"BarrierAgainstReduce", [](Caller& g) { g.barrier(); },
     [](Caller& g) { g.reduce(g.ones(1), 0); }, "the operation"},
    {"Dtype", [](Caller& g) { g.all_reduce(g.ones(4)); },
     [](Caller& g) { g.all_reduce(g.ones(4, DType::i32)); }, "the dtype"},
    {"ReduceOp", [](Caller& g) { g.all_reduce(g.ones(4)); },
     [](Caller& g) { g.all_reduce(g.ones(4), ReduceOp::max); }, "the reduce op"},
    {"Count", [](Caller& g) { g.all_reduce(g.ones(4)); },
     [](Caller& g) { g.all_reduce(g.ones(5)); }, "the element counts"},
    {"EmptyAgainstSome", [](Caller& g) { g.all_reduce(g.ones(0)); },
     [](Caller& g) { g.all_reduce(g.ones(5)); }, "the element counts"},
    {"LargeAgainstSmall", [](Caller& g) { g.all_reduce(flat_ones(500000)); },
     [](Caller& g) { g.all_reduce(g.ones(3)); }, "the element counts"},
    {"Root", [](Caller& g) { g.broadcast(g.ones(4), 0); },
     [](Caller& g) { g.broadcast(g.ones(4), g.size() - 1); }, "the root"},
    {"ReduceRoot", [](Caller& g) { g.reduce(g.ones(4), 0); },
     [](Caller& g) { g.reduce(g.ones(4), g.size() - 1); }, "the root"},
    {"GatherSize",
     [](Caller& g) {
       g.gather(g.ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](Caller& g) { g.gather(g.ones(3), {}, 0); }, " bytes, rank 0 expected "},
    {"AllGatherSizes", [](Caller& g) { g.all_gather(list(g, 2), g.ones(2)); },
     [](Caller& g) { g.all_gather(list(g, 3), g.ones(3)); }, "the element counts"},
    {"Order",
     [](Caller& g) {
       g.all_reduce(g.ones(4));
       g.barrier();
     },
     [](Caller& g) {
       g.barrier();
       g.all_reduce(g.ones(4));
     },
     "the operation"},
    {"OneCallTooMany", [](Caller& g) { g.broadcast(g.ones(4), 0); },
     [](Caller& g) {
       g.broadcast(g.ones(4), 0);
       g.broadcast(g.ones(4), 0);
     },
     "the operation"},
    {"ReduceScatterSizes", [](Caller& g) { g.reduce_scatter(g.ones(2), list(g, 2)); },
     [](Caller& g) { g.reduce_scatter(g.ones(3), list(g, 3)); }, "the element counts"},
    {"ReduceScatterOp", [](Caller& g) { g.reduce_scatter(g.ones(2), list(g, 2)); },
     [](Caller& g) { g.reduce_scatter(g.ones(2), list(g, 2), ReduceOp::min); }, "the reduce op"},
    {"AllGatherIntoTensorSize",
     [](Caller& g) { g.all_gather_into_tensor(g.ones(2 * g.size()), g.ones(2)); },
     [](Caller& g) { g.all_gather_into_tensor(g.ones(3 * g.size()), g.ones(3)); },
     "the element counts"},
    {"AllToAllSingleSize",
     [](Caller& g) { g.all_to_all_single(g.ones(2 * g.size()), g.ones(2 * g.size())); },
     [](Caller& g) { g.all_to_all_single(g.ones(4 * g.size()), g.ones(4 * g.size())); },
     " bytes, rank "},
    {"ScatterDtype",
     [](Caller& g) {
       g.scatter(g.ones(2), g.rank() == 0 ? list(g, 2) : std::vector<LocalTensor>(), 0);
     },
     [](Caller& g) { g.scatter(g.ones(2, DType::i64), {}, 0); }, "the dtype"},
    {"MonitoredBarrierAgainstBarrier", [](Caller& g) { g.monitored_barrier(); },
     [](Caller& g) { g.barrier(); }, "the operation"},
    {"AllReduceAgainstMonitoredBarrier", [](Caller& g) { g.all_reduce(g.ones(4)); },
     [](Caller& g) { g.monitored_barrier(); }, "the operation"},
    {"SplitLists",
     [](Caller& g) {
       g.split({{0, 1}});
     },
     [](Caller& g) { g.split({{0}}); }, "the element counts"},
};

/// What agrees before. After calls of the same kinds, rings are there: these go the short way.
enum class Before { nothing, messages };

struct Case {
  Mismatch mismatch;
  int size;
  std::string place;
  test::RankOptions options;
  Before before = Before::nothing;
  Mode mode = Mode::blocking;
  std::int64_t scale = 1;
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
    thrown = run_failing_ranks(now.size, now.options, [&](const ProcessGroup& group) {
      if (now.before == Before::messages) call_by_messages(group);
      const bool odd = group.rank() == now.size - 1;
      Caller caller(group, now.mode, now.scale);
      (odd ? now.mismatch.odd : now.mismatch.most)(caller);
      caller.wait_and_go_on();
      if (!now.options.machines.empty()) caller.hear_all();
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
  const test::RankOptions by_tcp{.transport = Transport::tcp}, two_machines{.machines = {2}},
      in_place{.shared_memory = true};
  std::vector<Case> all;
  for (const Mismatch& mismatch : kMismatches) {
    for (const int size : {2, 4}) {
      all.push_back({mismatch, size, "Automatic", {}});
      all.push_back({mismatch, size, "Tcp", by_tcp});
    }
    all.push_back({mismatch, 3, "AfterMessagesAutomatic", {}, Before::messages});
    all.push_back({mismatch, 4, "TwoAndTwo", two_machines});
    all.push_back({mismatch, 4, "AsyncAutomatic", {}, Before::nothing, Mode::async});
    all.push_back({mismatch, 4, "AsyncTcp", by_tcp, Before::nothing, Mode::async});
    all.push_back({mismatch, 4, "AsyncTwoAndTwo", two_machines, Before::nothing, Mode::async});
    // Longer than what goes beside a post. In place: where all lies in the ranks' shared tensors.
    constexpr std::int64_t kLong = 50'000;
    for (const Mode mode : {Mode::blocking, Mode::async}) {
      const auto add = [&](int size, const std::string& place, const test::RankOptions& options) {
        all.push_back({mismatch, size, (mode == Mode::async ? "Async" : "") + place, options,
                       Before::nothing, mode, kLong});
      };
      add(2, "InPlace", in_place);
      add(4, "InPlace", in_place);
      add(4, "Long", {});
      add(4, "LongTcp", by_tcp);
      add(4, "LongTwoAndTwo", two_machines);
    }
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  const Case& one = tested.param;
  return std::string(one.mismatch.name) + one.place + std::to_string(one.size);
}
INSTANTIATE_TEST_SUITE_P(All, DisagreementTest, testing::ValuesIn(cases()), case_name);

// Of so many calls ago no history tells.
TEST(PassedByTest, WhoIsFarAheadAndHasSentNothingIsNamed) {
  std::promise<void> told;
  const std::shared_future<void> after = told.get_future().share();
  const auto thrown = run_failing_ranks(3, {}, [&](const ProcessGroup& group) {
    Caller caller(group, Mode::blocking);
    if (group.rank() == 0) {
      try {
        shift(caller, 7);
      } catch (const base::Error&) {
        told.set_value();
        throw;
      }
    }
    if (group.rank() == 1) shift(caller, 7);
    for (int call = 0; call < 200 && group.rank() == 2; ++call) keep_all(caller, 8);
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
      group.all_gather(List(3, flat_ones(1)), flat_ones(1));
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
