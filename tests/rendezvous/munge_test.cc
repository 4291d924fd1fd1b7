// Munge with real munged of the test's own: two realms, each with its key and its socket.
#include "dtrun/rendezvous/munge.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>

#include "rendezvous/served_head.h"
#include "support/command.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::ErrorCode;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::contains;
using testing_support::run_command;

constexpr const char* kMunged = "/usr/sbin/munged";

base::Error thrown_error(const std::function<void()>& action) {
  return testing_support::error_of(action).value();
}

class MungeTest : public testing::Test {
 protected:
  // One munged, until it is stopped.
  class Daemon {
   public:
    explicit Daemon(const std::string& folder) : socket_(folder + "/socket") {
      std::filesystem::create_directory(folder);
      ::chmod(folder.c_str(), 0755);
      std::ofstream(folder + "/key") << folder << std::string(64, 'k');
      ::chmod((folder + "/key").c_str(), 0400);
      daemon_.emplace(std::vector<std::string>{
          "sh", "-c", "exec \"$@\" 2>&1", "sh", kMunged, "--foreground", "--force",
          "--num-threads=1", "--socket=" + socket_, "--key-file=" + folder + "/key",
          "--pid-file=" + folder + "/pid", "--seed-file=" + folder + "/seed",
          "--log-file=" + folder + "/log"});
      started_ = daemon_->wait_for_output("Created 1 work thread");
    }
    bool started() const { return started_; }
    std::string describe() { return daemon_->finish().describe(); }
    // It removes its socket: libmunge would try again and again at one that nobody listens at.
    void stop() {
      daemon_->signal(SIGTERM);
      daemon_->finish();
    }
    const std::string& socket() const { return socket_; }
    MungeOptions options() const { return {.socket = socket_}; }

   private:
    const std::string socket_;
    std::optional<Command> daemon_;
    bool started_ = false;
  };

  static void SetUpTestSuite() {
    if (::access(kMunged, X_OK) != 0) return;
    folder_ = "/tmp/dtrun_munge_XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) ::abort();
    ::chmod(folder_.c_str(), 0755);
    here_ = std::make_unique<Daemon>(folder_ + "/here");
    elsewhere_ = std::make_unique<Daemon>(folder_ + "/elsewhere");
  }
  static void TearDownTestSuite() {
    here_.reset();
    elsewhere_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void SetUp() override {
    if (!here_) GTEST_SKIP() << "munged is not installed: scripts/install-packages --lab";
    for (Daemon* daemon : {here_.get(), elsewhere_.get()})
      ASSERT_TRUE(daemon->started()) << daemon->describe();
  }

  // What it prints, as a user that is nobody.
  static CommandResult as_nobody(const std::string& line) {
    return run_command(
        {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", line});
  }

  static std::string folder_;
  static std::unique_ptr<Daemon> here_, elsewhere_;
};

std::string MungeTest::folder_;
std::unique_ptr<MungeTest::Daemon> MungeTest::here_, MungeTest::elsewhere_;

TEST_F(MungeTest, WhatOneSealsTheOtherOpensOnce) {
  Munge one(here_->options()), other(here_->options());
  const Realm::Sealed sealed = one.seal();
  EXPECT_EQ(sealed.secret.size(), Realm::kSecretBytes);
  EXPECT_LT(sealed.credential.size(), 512u);
  EXPECT_NE(one.seal().secret, sealed.secret);
  const Realm::Opened opened = other.open(sealed.credential);
  EXPECT_EQ(opened.secret, sealed.secret);
  EXPECT_EQ(opened.user, ::geteuid());
  EXPECT_EQ(other.own_user(), ::geteuid());
  const base::Error again = thrown_error([&] { other.open(sealed.credential); });
  EXPECT_EQ(again.code(), ErrorCode::kProtocol);
  EXPECT_TRUE(contains(again.what(), "Replayed credential")) << again.what();
}

TEST_F(MungeTest, WhatIsOfAnotherRealmOrNoCredentialDoesNotOpen) {
  Munge here(here_->options()), elsewhere(elsewhere_->options());
  for (const std::string& credential :
       {elsewhere.seal().credential, std::string("MUNGE:garbage:"), std::string("garbage"),
        std::string(1024, 'A'), std::string()}) {
    const base::Error error = thrown_error([&] { here.open(credential); });
    EXPECT_EQ(error.code(), ErrorCode::kProtocol) << credential;
    EXPECT_TRUE(contains(error.what(), "credential")) << error.what();
    EXPECT_TRUE(contains(error.what(), "the same key on both nodes")) << error.what();
  }
}

TEST_F(MungeTest, AnotherUserOpensNothingAndIsKnown) {
  if (::geteuid() != 0) GTEST_SKIP() << "it needs root, to be another user";
  Munge munge(here_->options());
  const CommandResult opened = as_nobody("printf %s '" + munge.seal().credential +
                                         "' | unmunge --socket=" + here_->socket() + " 2>&1");
  EXPECT_TRUE(contains(opened.out, "Unauthorized credential")) << opened.describe();
  const CommandResult sealed =
      as_nobody("munge --socket=" + here_->socket() + " --restrict-uid=0 --string=secret");
  EXPECT_EQ(munge.open(sealed.out.substr(0, sealed.out.find('\n'))).user, 65534u);
}

TEST_F(MungeTest, WithoutLibraryOrServiceItSaysWhatToDo) {
  const auto tried = [](const MungeOptions& options) {
    return thrown_error([&] { Munge munge(options); });
  };
  const base::Error none = tried({.library = "libnone.so.7"});
  EXPECT_EQ(none.code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(none.what(), "token=munge: libmunge is not here")) << none.what();
  EXPECT_TRUE(contains(none.what(), "libmunge2")) << none.what();
  const base::Error other = tried({.library = "libc.so.6"});
  EXPECT_TRUE(contains(other.what(), "'libc.so.6' is not the libmunge")) << other.what();
  Daemon stopped(folder_ + "/stopped");
  ASSERT_TRUE(stopped.started()) << stopped.describe();
  Munge munge(stopped.options());
  const std::string credential = munge.seal().credential;
  stopped.stop();
  for (const base::Error& error :
       {tried(stopped.options()), tried({.socket = folder_ + "/nowhere"}),
        thrown_error([&] { munge.open(credential); })}) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(contains(error.what(), "on this node")) << error.what();
    EXPECT_TRUE(contains(error.what(), "is munged running")) << error.what();
  }
}

TEST_F(MungeTest, WhetherItRunsIsSeenWithoutAskingIt) {
  EXPECT_TRUE(munge_runs(here_->options()));
  EXPECT_FALSE(munge_runs({.socket = folder_ + "/nowhere"}));
  MungeOptions options = here_->options();
  options.library = "libnone.so.7";
  EXPECT_FALSE(munge_runs(options));
}

TEST_F(MungeTest, AMungedThatIsGoneIsNotAskedForEachWhoComes) {
  Daemon daemon(folder_ + "/resting");
  ASSERT_TRUE(daemon.started()) << daemon.describe();
  MungeOptions options = daemon.options();
  options.rest = std::chrono::hours(1);
  Munge patient(options);
  options.rest = {};
  Munge restless(options);
  daemon.stop();
  EXPECT_TRUE(contains(thrown_error([&] { patient.seal(); }).what(), "Failed to access"));
  EXPECT_TRUE(contains(thrown_error([&] { restless.seal(); }).what(), "Failed to access"));
  const Daemon next(folder_ + "/resting");
  const base::Error resting = thrown_error([&] { patient.seal(); });
  EXPECT_EQ(resting.code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(resting.what(), "Failed to access")) << resting.what();
  EXPECT_TRUE(contains(resting.what(), "it is asked again in ")) << resting.what();
  EXPECT_FALSE(restless.seal().credential.empty());
}

TEST_F(MungeTest, AgentsOfOneRealmMeetAndOthersAreKeptOut) {
  const auto job = job_of(1, 1);
  HeadServiceOptions options;
  options.proof = std::make_shared<Munge>(here_->options());
  ServedHead head(job, options);
  TestAgents agents(job);
  TestAgent& stranger =
      agents.add("a", head.place(), {.proof = std::make_shared<Munge>(elsewhere_->options())});
  TestAgent& none = agents.add("b", head.place());
  ASSERT_TRUE(agents.until_finished({&stranger, &none}));
  EXPECT_TRUE(contains(stranger.finished->error->what(), "Invalid credential"))
      << stranger.finished->error->what();
  EXPECT_TRUE(contains(none.finished->error->what(),
                       "this job demands a token of munge (--rdzv_conf token=munge)"))
      << none.finished->error->what();
  TestAgent& right =
      agents.add("c", head.place(), {.proof = std::make_shared<Munge>(here_->options())});
  ASSERT_TRUE(agents.until_round(0, {&right}));
}

}  // namespace
}  // namespace dtrun::rendezvous
