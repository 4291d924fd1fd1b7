// What a user writes for a backend, and which of them are there.
#include "dtrun/collectives/backend_spec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/hash_store.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using testing_support::contains;
using testing_support::error_of;

TEST(BackendSpecTest, OneNameServesTheDeviceOfItsOwn) {
  EXPECT_EQ(parse_backend_spec("gloo").cpu, "gloo");
  EXPECT_EQ(parse_backend_spec("gloo").cuda, "");
  EXPECT_EQ(parse_backend_spec("staged").cpu, "");
  EXPECT_EQ(parse_backend_spec("staged").of(tensors::DeviceType::cuda), "staged");
  for (const char* text : {"cpu", "gloo", "mpi", "nccl", "staged", "cpu:cpu,cuda:nccl"})
    EXPECT_EQ(parse_backend_spec(text).to_string(), text);
}

TEST(BackendSpecTest, OneNamePerDeviceIsReadInAnyOrder) {
  EXPECT_EQ(parse_backend_spec("cuda:nccl,cpu:gloo").to_string(), "cpu:gloo,cuda:nccl");
  EXPECT_EQ(parse_backend_spec("cpu:mpi").to_string(), "mpi");
}

TEST(BackendSpecTest, WhatCannotBeReadIsRefusedWithWhatThereIs) {
  const std::pair<const char*, const char*> wrong[] = {
      {"smoke", "no backend 'smoke'"},
      {"", "no backend ''"},
      {"cpu:smoke", "no backend 'smoke'"},
      {"tpu:cpu", "no device 'tpu'"},
      {"cpu,cuda:nccl", "'cpu' names no device"},
      {"cpu:cpu,", "'' names no device"},
      {"cpu:cpu,cpu:gloo", "device cpu stands twice"},
      {"cpu:nccl", "backend 'nccl' takes cuda tensors only"},
      {"cuda:gloo", "backend 'gloo' takes cpu tensors only"},
  };
  for (const auto& [text, what] : wrong) {
    const std::optional<Error> error = error_of([&] { parse_backend_spec(text); });
    ASSERT_TRUE(error.has_value()) << text;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(contains(error->what(), what)) << error->what();
    EXPECT_TRUE(contains(error->remedy(), "usable here are: cpu")) << error->what();
  }
}

TEST(AvailableBackendsTest, AGroupCanBeMadeOfThoseAndOfNoOthers) {
  const std::vector<std::string> available = available_backends();
  EXPECT_EQ(available.front(), "cpu");
  EXPECT_FALSE(is_backend_available("smoke"));
  for (const char* name : {"cpu", "gloo", "mpi", "nccl", "staged"}) {
    const bool there = std::count(available.begin(), available.end(), name) == 1;
    EXPECT_EQ(is_backend_available(name), there);
    if (there) continue;
    for (const std::string& text : {std::string(name), "cpu:cpu,cuda:" + std::string(name)}) {
      GroupOptions options = test::group_options(rendezvous::make_hash_store(), 0, 1);
      options.backend = text;
      const std::optional<Error> error = error_of([&] { ProcessGroup::create(options); });
      ASSERT_TRUE(error.has_value()) << text;
      if (error->code() == ErrorCode::kInvalidArgument) continue;  // gloo and mpi on cuda
      EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
      EXPECT_TRUE(contains(error->summary(), std::string("backend '") + name + "'"));
      EXPECT_TRUE(contains(error->remedy(), "usable here are: cpu")) << error->what();
    }
  }
}

}  // namespace
}  // namespace dtrun::collectives
