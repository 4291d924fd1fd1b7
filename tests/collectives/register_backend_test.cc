// Backends that a program registers by name: where the name works, and what is refused.
#include "dtrun/collectives/register_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/backend_spec.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "support/store_backend.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;
using tensors::ones;
using testing_support::contains;
using testing_support::error_of;

std::unique_ptr<Backend> make_store_backend(const GroupOptions& options) {
  return std::make_unique<test::StoreBackend>(options);
}

/// In this process once.
void register_store_backend() {
  if (!is_backend_available("store")) register_backend("store", make_store_backend);
}

test::RankOptions on_store(const std::string& backend = "store") {
  register_store_backend();
  return {.backend = backend};
}

void expect_error(const std::optional<Error>& error, ErrorCode code, const std::string& text) {
  ASSERT_TRUE(error.has_value()) << text;
  EXPECT_EQ(error->code(), code) << error->what();
  EXPECT_TRUE(contains(error->what(), text)) << error->what();
}

TEST(RegisterBackendTest, AGroupWorksOverIt) {
  for (const char* name : {"store", "cpu:store"})
    test::run_ranks(3, on_store(name), [](const ProcessGroup& group) {
      EXPECT_EQ(group.backend_name(), "store");
      const LocalTensor sum = tensors::full({5}, group.rank());
      group.all_reduce(sum);
      EXPECT_EQ(sum.to_vector(), std::vector<double>(5, 3));
      // Strided, scaled, and in the background.
      const LocalTensor columns = ones({4, 2}).transpose(0, 1);
      const Work work = group.all_reduce(columns, ReduceOp::premul_sum,
                                         {.async = true, .factor = group.rank() + 1});
      EXPECT_TRUE(work.elapsed().has_value());
      work.then([](const std::exception_ptr& error) { EXPECT_EQ(error, nullptr); }).wait();
      EXPECT_EQ(columns.to_vector(), std::vector<double>(8, 6));
      const CallCount count = group.call_counters().of(OpKind::all_reduce);
      EXPECT_EQ(count.calls, 2U);
      EXPECT_EQ(count.failed, 0U);
      EXPECT_EQ(count.timed, 2U);
      const LocalTensor shared = tensors::full({2}, group.rank());
      group.broadcast(shared, 2);
      EXPECT_EQ(shared.to_vector(), (std::vector<double>{2, 2}));
      const ProcessGroup pair = group.split({{0, 2}}, "pair");
      if (pair.valid()) pair.all_reduce(shared);
      group.barrier();
    });
}

TEST(RegisterBackendTest, AGroupOfAnotherBackendSplitsIntoIt) {
  register_store_backend();
  test::run_ranks(3, [](const ProcessGroup& group) {
    const ProcessGroup part = group.split({{0, 1}}, "part", {.backend = "store"});
    if (!part.valid()) return;
    EXPECT_EQ(part.backend_name(), "store");
    const LocalTensor sum = ones({2});
    part.all_reduce(sum);
    EXPECT_EQ(sum.to_vector(), (std::vector<double>{2, 2}));
  });
}

TEST(RegisterBackendTest, WhatItLacksIsRefusedOnAllRanks) {
  const auto thrown = test::run_failing_ranks(2, on_store(), [](const ProcessGroup& group) {
    if (group.rank() == 0) group.all_reduce(ones({2}), ReduceOp::max);
    group.barrier();
  });
  ASSERT_TRUE(thrown[0] && thrown[1]);
  EXPECT_EQ(thrown[0]->code, ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(thrown[0]->text, "backend 'store' has no all_reduce #1")) << thrown[0]->text;
  EXPECT_EQ(thrown[1]->code, ErrorCode::kPeerFailed);
  EXPECT_TRUE(contains(thrown[1]->text, "rank 0 rejected its all_reduce #1")) << thrown[1]->text;
}

TEST(RegisterBackendTest, AnAbortedGroupOverItIsMadeAnew) {
  test::run_ranks(3, on_store(), [](const ProcessGroup& group) {
    if (group.rank() == 1) group.abort("enough");
    expect_error(error_of([&] { group.all_reduce(ones({1})); }), ErrorCode::kAborted,
                 "rank 1 has aborted group 'world': enough");
    if (group.rank() == 2) return;
    const ProcessGroup rest = group.shrink({.excluded_ranks = {2}});
    EXPECT_EQ(rest.backend_name(), "store");
    rest.barrier();
  });
}

TEST(RegisterBackendTest, ItIsAmongTheAvailableOnes) {
  register_store_backend();
  EXPECT_TRUE(is_backend_available("store"));
  EXPECT_FALSE(is_backend_available("stove"));
  const std::vector<std::string> all = available_backends();
  EXPECT_EQ(std::count(all.begin(), all.end(), "store"), 1);
  const std::optional<Error> unknown = error_of([] { parse_backend_spec("stove"); });
  expect_error(unknown, ErrorCode::kInvalidArgument, "no backend 'stove'");
  EXPECT_TRUE(contains(unknown->what(), "store")) << unknown->what();
  expect_error(error_of([] { parse_backend_spec("cuda:store"); }), ErrorCode::kInvalidArgument,
               "backend 'store' takes cpu tensors only");
}

TEST(RegisterBackendTest, NamesThatAreTakenOrAreNoneAreRefused) {
  register_store_backend();
  const auto refuses = [](const std::string& name, BackendFactory factory, const char* why) {
    expect_error(error_of([&] { register_backend(name, std::move(factory)); }),
                 ErrorCode::kInvalidArgument, why);
  };
  refuses("store", make_store_backend, "it is registered already");
  for (const char* own : {"cpu", "gloo", "mpi", "nccl", "staged"})
    refuses(own, make_store_backend, "dtrun has one of that name");
  for (const char* name : {"", "cpu:mine", "a,b", "Mine", "my own"})
    refuses(name, make_store_backend, "a name is made of a to z");
  refuses("empty", nullptr, "its factory is empty");
  EXPECT_FALSE(is_backend_available("empty"));
}

TEST(RegisterBackendTest, AFactoryThatFailsIsNamedWithItsReason) {
  // Names are never given back, and a test may be repeated.
  static int turns = 0;
  const std::string turn = std::to_string(turns++);
  using Options = const GroupOptions&;
  register_backend("refusing" + turn, [](Options) -> std::unique_ptr<Backend> {
    throw Error(ErrorCode::kConnection, "the switch is off", "it is Sunday", "switch it on");
  });
  register_backend("throwing" + turn, [](Options) -> std::unique_ptr<Backend> {
    throw std::runtime_error("out of luck");
  });
  register_backend("none" + turn, [](Options) { return std::unique_ptr<Backend>(); });
  register_backend("other-rank" + turn, [](Options given) {
    GroupOptions options = given;
    options.global_ranks.push_back(7);
    return make_store_backend(options);
  });
  register_backend("other-device" + turn, make_store_backend, tensors::DeviceType::cuda);
  const auto make = [&](const std::string& name) {
    return error_of([&] {
      ProcessGroup::create(
          test::group_options(rendezvous::make_hash_store(), 0, 1, {.backend = name + turn}));
    });
  };
  const std::string of = "could not be made for group 'world'";
  expect_error(make("refusing"), ErrorCode::kConnection,
               "backend 'refusing" + turn + "' " + of + ": the switch is off\n  why: it is Sunday");
  expect_error(make("throwing"), ErrorCode::kSystem,
               "backend 'throwing" + turn + "' " + of + ": out of luck");
  expect_error(make("none"), ErrorCode::kSystem, "registered for it returned none");
  expect_error(make("other-rank"), ErrorCode::kInvalidArgument,
               "it is rank 0 of 2, and the group wants rank 0 of 1");
  expect_error(make("other-device"), ErrorCode::kInvalidArgument, "on the device that it was");
}

}  // namespace
}  // namespace dtrun::collectives
