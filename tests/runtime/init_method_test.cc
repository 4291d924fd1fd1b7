// What init() is given, and what it makes of it with the environment.
#include "init_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <chrono>
#include <filesystem>
#include <string>

#include "job_place.h"
#include "support/thrown_error.h"

namespace dtrun::runtime {
namespace {

using base::Environment;
using base::ErrorCode;
using testing::HasSubstr;
using testing_support::error_of;
using Kind = InitMethod::Kind;

TEST(InitMethodTest, TorchsThreeKindsAreRead) {
  EXPECT_EQ(parse_init_method("env://").kind, Kind::environment);
  const InitMethod tcp = parse_init_method("tcp://[::1]:29500?rank=3&world_size=4");
  EXPECT_EQ(tcp.kind, Kind::tcp);
  EXPECT_EQ(tcp.host, "::1");
  EXPECT_EQ(tcp.port, 29500);
  EXPECT_EQ(tcp.rank, 3);
  EXPECT_EQ(tcp.world_size, 4);
  const InitMethod file = parse_init_method("file:///tmp/a b?world_size=2&use_libuv=1");
  EXPECT_EQ(file.kind, Kind::file);
  EXPECT_EQ(file.path, "/tmp/a b");
  EXPECT_EQ(file.rank, std::nullopt);
  EXPECT_EQ(file.world_size, 2);
}

TEST(InitMethodTest, WhatCannotBeReadIsNamedWithTheListOfWhatThereIs) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "does not begin with a kind"},
      {"29500", "does not begin with a kind"},
      {"etcd://host:1", "there is no kind 'etcd'"},
      {"env://host", "takes no address"},
      {"tcp://", "names no host"},
      {"tcp://host", "the port is missing"},
      {"tcp://host:0", "the port is missing"},
      {"tcp://host:70000", "70000"},
      {"tcp://host:port", "port"},
      {"file://relative/path", "the whole path"},
      {"file:///folder/", "the whole path"},
      {"tcp://host:1?rank=one", "'one' is no rank"},
      {"tcp://host:1?rank=-1", "'-1' is no rank"},
      {"env://?world_size=", "'' is no world_size"},
      {"env://?ranks=1", "it has no parameter 'ranks'"},
  };
  for (const auto& [text, why] : cases) {
    const auto error = error_of([&, method = text] { parse_init_method(method); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(error->summary(), HasSubstr(std::string("'") + text + "'"));
    EXPECT_THAT(error->why(), HasSubstr(why)) << text;
    EXPECT_THAT(error->remedy(), HasSubstr("env://, tcp://HOST:PORT and file:///PATH"));
  }
}

rendezvous::WorkerEnv place(InitOptions options, const std::map<std::string, std::string>& set) {
  options.environment = Environment();
  for (const auto& [name, value] : set) options.environment.set(name, value);
  return find_place(options, parse_init_method(options.init_method));
}

TEST(JobPlaceTest, ArgumentsCountBeforeTheMethodsAndBothBeforeTheEnvironment) {
  const std::map<std::string, std::string> set = {
      {"RANK", "1"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(place({}, set).rank, 1);
  const auto query = place({.init_method = "env://?rank=2"}, set);
  EXPECT_EQ(query.rank, 2);
  EXPECT_EQ(query.world_size, 8);
  const auto both = place({.init_method = "env://?rank=2", .rank = 3, .world_size = 4}, set);
  EXPECT_EQ(both.rank, 3);
  EXPECT_EQ(both.local_rank, 3);
  EXPECT_EQ(both.world_size, 4);
  EXPECT_EQ(both.master_addr, "n0");
}

TEST(JobPlaceTest, TheLaunchersStoreIsUsedWhereTheMethodNamesIt) {
  const std::map<std::string, std::string> set = {{"RANK", "0"},
                                                  {"WORLD_SIZE", "1"},
                                                  {"MASTER_ADDR", "n0"},
                                                  {"MASTER_PORT", "29500"},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_TRUE(place({}, set).use_agent_store);
  EXPECT_TRUE(place({.init_method = "tcp://n0:29500"}, set).use_agent_store);
  const auto other = place({.init_method = "tcp://n0:29501"}, set);
  EXPECT_FALSE(other.use_agent_store);
  EXPECT_EQ(other.master_port, 29501);
}

TEST(JobPlaceTest, AllThatIsMissingIsNamedAtOnceAndOnlyThat) {
  const auto missing = [](const InitOptions& options) {
    const auto error = error_of([&] { place(options, {}); });
    EXPECT_TRUE(error && error->code() == ErrorCode::kUsage);
    return error ? error->summary() : "";
  };
  EXPECT_EQ(missing({}), "the environment lacks RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT");
  EXPECT_EQ(missing({.rank = 0, .world_size = 1}),
            "the environment lacks MASTER_ADDR, MASTER_PORT");
  EXPECT_EQ(missing({.init_method = "tcp://h:1", .rank = 0}), "the environment lacks WORLD_SIZE");
  EXPECT_EQ(missing({.init_method = "file:///f"}), "the environment lacks RANK, WORLD_SIZE");
}

TEST(JobPlaceTest, ArgumentsThatCannotBeAreNamed) {
  const std::pair<InitOptions, const char*> cases[] = {
      {{.rank = -2, .world_size = 1}, "rank -2"},
      {{.rank = 0, .world_size = 0}, "world_size 0"},
      {{.rank = 0, .world_size = -5}, "world_size -5"},
      {{.rank = 4, .world_size = 4}, "rank 4 and world_size 4"},
      {{.init_method = "tcp://h:1?rank=2&world_size=2"}, "rank 2 and world_size 2"},
      {{.rank = 0, .world_size = 1, .timeout = std::chrono::seconds(0)}, "a timeout of 0"},
      {{.rank = 0, .world_size = 1, .timeout = std::chrono::seconds(-1)}, "a timeout of -"},
  };
  for (const auto& [options, text] : cases) {
    const auto error = error_of([&, given = options] { place(given, {}); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(error->summary(), HasSubstr(text));
  }
}

// dtrun --debug-rank says so to all ranks.
TEST(InitMethodTest, WhileARankIsDebuggedTheOthersWaitForIt) {
  const std::string path = testing::TempDir() + "debugged_" + std::to_string(::getpid());
  InitOptions options;
  options.init_method = "file://" + path;
  options.rank = 0;
  options.world_size = 1;
  options.timeout = std::chrono::seconds(5);
  options.environment = Environment();
  EXPECT_EQ(init(options).world().timeout(), std::chrono::seconds(5));
  options.environment.set("DTRUN_IS_DEBUGGED", "1");
  EXPECT_GE(init(options).world().timeout(), std::chrono::hours(24));
  std::filesystem::remove(path);
}

TEST(InitMethodTest, ANumberOfConnectionsThatCannotBeIsRefused) {
  const std::string path = testing::TempDir() + "connections_" + std::to_string(::getpid());
  InitOptions options;
  options.init_method = "file://" + path;
  options.rank = 0;
  options.world_size = 1;
  for (const char* const text : {"0", "17", "many", ""}) {
    options.environment.set("DTRUN_CONNECTIONS_PER_PEER", text);
    const auto error = error_of([&] { init(options); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error->what(), HasSubstr(std::string("DTRUN_CONNECTIONS_PER_PEER=") + text));
    EXPECT_THAT(error->remedy(), HasSubstr("from 1 to 16"));
  }
  for (const char* const text : {"auto", "1", "16"}) {
    options.environment.set("DTRUN_CONNECTIONS_PER_PEER", text);
    EXPECT_FALSE(error_of([&] { init(options); })) << text;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace dtrun::runtime
