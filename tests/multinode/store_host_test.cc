// A store on a host of its own, which its clients on another host lose: cut off without a sign.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "support/command.h"

namespace dtrun {
namespace {

using std::chrono::steady_clock;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

class StoreHostTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make hosts in network namespaces";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    options_.environment["LAB_DIR"] = folder_ + "/lab";
    const CommandResult up = run_command({lab("hosts-up"), "--ttl", "300", "2"}, options_);
    ASSERT_EQ(up.exit_code, 0) << up.describe();
  }

  void TearDown() override {
    store_.reset();
    if (!options_.environment.contains("LAB_DIR")) return;
    run_command({lab("hosts-down")}, options_);
    std::error_code ignored;  // what cannot be removed is of a host that still ends
    std::filesystem::remove_all(folder_, ignored);
  }

  static std::string lab(const std::string& script) {
    return DTRUN_SOURCE_DIR "/tests/lab/slurm/" + script;
  }
  std::unique_ptr<Command> on_host(const std::string& host, std::vector<std::string> words) {
    words.insert(words.begin(), {lab("hosts-exec"), host});
    return std::make_unique<Command>(words, options_);
  }

  std::string folder_ = "/tmp/dtrun_store_host_XXXXXX";
  CommandOptions options_;
  std::unique_ptr<Command> store_;
};

double seconds_since(steady_clock::time_point then) {
  return std::chrono::duration<double>(steady_clock::now() - then).count();
}

TEST_F(StoreHostTest, ACutHostIsNoticedWithinTheWindowByWhoWaitsAndByWhoAsks) {
  store_ = on_host("1", {DTRUN_BIN "/dtrun-store", "--bind", "node1", "--port", "29600"});
  ASSERT_TRUE(store_->wait_for_output("serving at ")) << store_->finish().describe();
  const auto waiter = on_host("2", {STORE_CLIENT, "node1", "29600", "2", "wait"});
  const auto asker = on_host("2", {STORE_CLIENT, "node1", "29600", "2", "ask"});
  for (const auto& client : {waiter.get(), asker.get()})
    ASSERT_TRUE(client->wait_for_output("reached")) << client->finish().describe();
  ASSERT_EQ(run_command({lab("hosts-cut"), "--silent", "1"}, options_).exit_code, 0);
  const auto cut = steady_clock::now();
  for (const auto& client : {waiter.get(), asker.get()}) {
    const CommandResult result = client->finish();
    EXPECT_EQ(result.exit_code, 3) << result.describe();
    EXPECT_THAT(result.out, HasSubstr("lost the store at node1:29600"));
    EXPECT_THAT(result.out, HasSubstr("its host has not answered for 2 s"));
    EXPECT_THAT(result.out, HasSubstr("try: "));
  }
  EXPECT_GT(seconds_since(cut), 0.9);
  EXPECT_LT(seconds_since(cut), 20.0);
  // The store's host sees its clients no more, and ends as always.
  store_->signal(SIGTERM);
  const CommandResult ended = store_->finish();
  EXPECT_EQ(ended.exit_code, 0) << ended.describe();
}

}  // namespace
}  // namespace dtrun
