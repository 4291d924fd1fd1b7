// dist::Coalesce: what it lists, what it refuses, and how a scope can end.
#include "dtrun/runtime/dist_coalesce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/runtime/dist_objects.h"
#include "runtime/dist_ranks.h"
#include "support/thrown_error.h"

namespace dtrun::dist {
namespace {

using base::ErrorCode;
using collectives::OpKind;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;
using Numbers = std::vector<double>;

Tensor row(const Numbers& values) {
  return tensors::tensor_from(values, {static_cast<std::int64_t>(values.size())},
                              tensors::DType::f32);
}

std::uint64_t calls_of(OpKind kind, const ProcessGroup& group = {}) {
  return call_counters(group).of(kind).calls;
}

TEST(CoalesceTest, NothingIsSentBeforeTheEndAndAllIsThereAfterIt) {
  run_dist_ranks(3, [](int rank) {
    const double mine = rank + 1;
    const Tensor sum = row({mine});
    const Tensor most = row({mine, -mine});
    const Tensor scaled = row({mine});
    Coalesce together;
    const Work first = all_reduce(sum);
    all_reduce(most, ReduceOp::max, {.async_op = true});
    all_reduce(scaled, ReduceOp::premul_sum, {.factor = 2});
    EXPECT_EQ(calls_of(OpKind::all_reduce), 0U);
    EXPECT_EQ(sum.to_vector(), Numbers{mine});
    EXPECT_FALSE(first.is_completed());
    EXPECT_EQ(error_of([&] { first.wait(); })->code(), ErrorCode::kUsage);
    bool told = false;
    const Work behind = first.then([&](const std::exception_ptr& error) { told = !error; });
    const Work all = together.end();
    all.wait();
    EXPECT_TRUE(all.is_success());
    behind.wait();
    EXPECT_TRUE(told);
    first.wait();
    EXPECT_TRUE(first.is_success());
    EXPECT_TRUE(first.elapsed().has_value());
    EXPECT_EQ(calls_of(OpKind::all_reduce), 3U);
    EXPECT_EQ(sum.to_vector(), Numbers{6});
    EXPECT_EQ(most.to_vector(), (Numbers{3, -1}));
    EXPECT_EQ(scaled.to_vector(), Numbers{12});
    // The scope is over: this one runs at once.
    all_reduce(sum);
    EXPECT_EQ(sum.to_vector(), Numbers{18});
    EXPECT_EQ(error_of([&] { static_cast<void>(together.end()); })->code(), ErrorCode::kUsage);
  });
}

// Who polls carries operations on, and calls what waits for them, on its own stack.
TEST(CoalesceTest, WhatWaitsForACallMayAskItWhileItIsPolled) {
  run_dist_ranks(2, [](int rank) {
    const Tensor sum = row({rank + 1.0});
    Coalesce together;
    const Work call = all_reduce(sum);
    std::atomic<bool> was_over = false;
    const Work behind =
        call.then([&](const std::exception_ptr&) { was_over = call.is_completed(); });
    const Work all = together.end();
    while (!call.is_completed() || !behind.is_completed()) std::this_thread::yield();
    all.wait();
    EXPECT_TRUE(was_over);
    EXPECT_EQ(sum.to_vector(), Numbers{3});
  });
}

TEST(CoalesceTest, ItEndsOnItsOwnThread) {
  run_dist_ranks(1, [](int) {
    Coalesce together;
    std::optional<base::Error> refused;
    std::thread([&] { refused = error_of([&] { static_cast<void>(together.end()); }); }).join();
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->code(), ErrorCode::kUsage);
    EXPECT_THAT(refused->what(), HasSubstr("on another thread"));
    together.end().wait();
  });
}

/// A call of each kind, with room for its result, and what it gives on two ranks.
struct Kind {
  OpKind kind;
  std::function<void(const Tensor& out, const Tensor& own, const std::vector<Tensor>& each)> call;
  Numbers expected;
};

TEST(CoalesceTest, EveryKindOfCollectiveGivesWhatItGivesByItself) {
  run_dist_ranks(2, [](int rank) {
    const double mine = rank + 1;
    using List = std::vector<Tensor>;
    const List none;
    const Kind kinds[] = {
        {OpKind::broadcast, [](auto& out, auto&, auto&) { broadcast(out, 1); }, {2, 2}},
        {OpKind::reduce, [](auto& out, auto&, auto&) { reduce(out, 0); },
         rank == 0 ? Numbers{3, 3} : Numbers{2, 2}},
        {OpKind::all_gather,
         [](auto& out, auto& own, auto&) { all_gather_into_tensor(out, own); },
         {1, 2}},
        {OpKind::all_gather,
         [](auto& out, auto& own, auto&) {
           all_gather({out.slice(0, 0, 1), out.slice(0, 1, 2)}, own);
         },
         {1, 2}},
        {OpKind::gather,
         [&](auto& out, auto& own, auto&) {
           gather(own, rank == 0 ? List{out.slice(0, 0, 1), out.slice(0, 1, 2)} : none, 0);
         },
         rank == 0 ? Numbers{1, 2} : Numbers{2, 2}},
        {OpKind::scatter,
         [&](auto& out, auto&, auto& each) {
           scatter(out.slice(0, 0, 1), rank == 0 ? each : none, 0);
         },
         rank == 0 ? Numbers{1, 1} : Numbers{2, 2}},
        {OpKind::reduce_scatter,
         [](auto& out, auto&, auto& each) { reduce_scatter(out.slice(0, 0, 1), each); },
         rank == 0 ? Numbers{3, 1} : Numbers{3, 2}},
        {OpKind::reduce_scatter,
         [](auto& out, auto&, auto&) { reduce_scatter_tensor(out.slice(0, 0, 1), out.clone()); },
         rank == 0 ? Numbers{3, 1} : Numbers{3, 2}},
        {OpKind::all_to_all,
         [](auto& out, auto&, auto& each) {
           all_to_all({out.slice(0, 0, 1), out.slice(0, 1, 2)}, each);
         },
         rank == 0 ? Numbers{1, 2} : Numbers{2, 1}},
        {OpKind::all_to_all,
         [](auto& out, auto&, auto&) { all_to_all_single(out, out.clone()); },
         {1, 2}},
    };
    for (const Kind& one : kinds) {
      // Each of two calls has tensors of its own.
      const Tensor own = row({mine});
      const List each = rank == 0 ? List{row({1}), row({2})} : List{row({2}), row({1})};
      const Tensor outs[] = {row({mine, mine}), row({mine, mine})};
      const std::uint64_t before = calls_of(one.kind);
      Coalesce together;
      for (const Tensor& out : outs) one.call(out, own, each);
      EXPECT_EQ(calls_of(one.kind), before) << op_kind_name(one.kind);
      together.end().wait();
      EXPECT_EQ(calls_of(one.kind), before + 2) << op_kind_name(one.kind);
      for (const Tensor& out : outs)
        EXPECT_EQ(out.to_vector(), one.expected) << op_kind_name(one.kind);
    }
    EXPECT_TRUE(Coalesce().end().is_success());
  });
}

TEST(CoalesceTest, MessagesBecomeOneBatch) {
  run_dist_ranks(2, [](int rank) {
    const int peer = 1 - rank;
    const Tensor in[] = {row({0}), row({0}), row({0})};
    Coalesce together;
    const Work received = irecv(in[0], peer, {.tag = 7});
    isend(row({10.0 + rank}), peer, {.tag = 7});
    const std::vector<Work> batch = batch_isend_irecv(
        {{P2POp::Kind::receive, in[1], -1, 8}, {P2POp::Kind::send, row({20.0 + rank}), peer, 8}});
    EXPECT_EQ(error_of([&] { irecv(in[2], peer, {.timeout = std::chrono::seconds(1)}); })->code(),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(calls_of(OpKind::send), 0U);
    together.end().wait();
    EXPECT_EQ(calls_of(OpKind::send), 2U);
    EXPECT_EQ(calls_of(OpKind::receive), 2U);
    EXPECT_TRUE(received.is_success());
    EXPECT_EQ(batch[0].source_rank(), peer);
    EXPECT_EQ(in[0].to_vector(), Numbers{10.0 + peer});
    EXPECT_EQ(in[1].to_vector(), Numbers{20.0 + peer});
    EXPECT_EQ(in[2].to_vector(), Numbers{0});
  });
}

TEST(CoalesceTest, WhatDoesNotFitIsRefusedAndTheListStaysWhatItWas) {
  run_dist_ranks(2, [](int) {
    const Tensor sum = row({1});
    const Tensor other = row({1});
    Coalesce together;
    all_reduce(sum);
    EXPECT_THAT(error_of([&] { broadcast(other, 0); })->what(),
                AllOf(HasSubstr("broadcast in dist::Coalesce at "), HasSubstr("dist_coalesce_test"),
                      HasSubstr("in group 'world'"), HasSubstr("1 x all_reduce")));
    EXPECT_THAT(error_of([&] { isend(other, 0); })->what(), HasSubstr("isend and irecv in"));
    std::vector<std::string> texts;
    const std::function<void()> cannot_wait[] = {
        [] { barrier(); },
        [] { monitored_barrier(); },
        [&] { send(other, 0); },
        [&] { recv(other); },
        [&] { all_reduce_coalesced({other}); },
        [&] { all_gather_object(texts, std::string("text")); },
        [] { const Coalesce second; },
    };
    for (const std::function<void()>& call : cannot_wait)
      EXPECT_EQ(error_of(call)->code(), ErrorCode::kUsage);
    together.end().wait();
    EXPECT_EQ(sum.to_vector(), Numbers{2});
    EXPECT_EQ(other.to_vector(), Numbers{1});
    barrier();
  });
}

TEST(CoalesceTest, CallsInOtherGroupsRunAtOnceAndCanHaveAScopeOfTheirOwn) {
  run_dist_ranks(2, [](int) {
    const ProcessGroup pair = new_group({0, 1}, {.name = "pair"});
    const Tensor of_world = row({1});
    const Tensor of_pair = row({1});
    Coalesce outer;
    all_reduce(of_world);
    broadcast(of_pair, 0, {.group = pair});
    all_reduce(of_pair, ReduceOp::sum, {.group = pair});
    EXPECT_EQ(of_pair.to_vector(), Numbers{2});
    {
      Coalesce inner(pair);
      all_reduce(of_pair, ReduceOp::sum, {.group = pair});
      EXPECT_EQ(of_pair.to_vector(), Numbers{2});
      outer.end().wait();  // before the one that was made later
      EXPECT_EQ(of_world.to_vector(), Numbers{2});
      inner.end().wait();
    }
    EXPECT_EQ(of_pair.to_vector(), Numbers{4});
    const ProcessGroup first = new_group({0});
    if (!first.valid()) {
      EXPECT_EQ(error_of([&] { const Coalesce foreign(first); })->code(), ErrorCode::kUsage);
    }
  });
}

TEST(CoalesceTest, AnExceptionDropsTheListAndTheGroupStaysUsable) {
  run_dist_ranks(2, [](int) {
    const Tensor tensor = row({1});
    Work dropped;
    EXPECT_THROW(
        {
          const Coalesce together;
          dropped = all_reduce(tensor);
          throw std::runtime_error("the program's own");
        },
        std::runtime_error);
    EXPECT_TRUE(dropped.is_completed());
    EXPECT_FALSE(dropped.is_success());
    EXPECT_THAT(error_of([&] { dropped.wait(); })->what(), HasSubstr("was never started"));
    EXPECT_EQ(tensor.to_vector(), Numbers{1});
    all_reduce(tensor);
    EXPECT_EQ(tensor.to_vector(), Numbers{2});
  });
}

TEST(CoalesceTest, AScopeThatIsNeverEndedAbortsItsGroupOnAllRanks) {
  const std::vector<Ended> ended = run_failing_dist_ranks(2, [](int rank) {
    const Tensor tensor = row({1});
    if (rank == 0) {
      { const Coalesce empty; }  // nothing is missing
      const Coalesce together;
      all_reduce(tensor);
    } else {
      all_reduce(tensor);
    }
    if (rank == 0) barrier();
  });
  for (const Ended& end : ended) {
    ASSERT_TRUE(end.error.has_value()) << end.other;
    EXPECT_EQ(end.error->code(), ErrorCode::kAborted);
    EXPECT_THAT(end.error->what(),
                AllOf(HasSubstr("rank 0 has aborted group 'world'"),
                      HasSubstr("dist_coalesce_test"), HasSubstr("was left without end()")));
  }
}

TEST(CoalesceTest, ACallThatCannotStartThrowsInTheEndAndFailsThoseBehindIt) {
  const std::vector<Ended> ended = run_failing_dist_ranks(2, [](int rank) {
    const Tensor good = row({1});
    Work last;
    try {
      Coalesce together;
      all_reduce(good);
      all_reduce(good, rank == 0 ? ReduceOp::band : ReduceOp::sum);  // of floats: there is none
      last = all_reduce(good);
      together.end().wait();
    } catch (...) {
      EXPECT_TRUE(last.is_completed());
      EXPECT_FALSE(last.is_success());
      throw;
    }
  });
  ASSERT_TRUE(ended[0].error.has_value());
  EXPECT_EQ(ended[0].error->code(), ErrorCode::kInvalidArgument) << ended[0].error->what();
  ASSERT_TRUE(ended[1].error.has_value()) << "rank 1 has not been told";
}

}  // namespace
}  // namespace dtrun::dist
