// What mp decides without doing anything: whether a copy could live, what a child may see, which
// failure came first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "mp/child_environment.h"
#include "mp/fork_danger.h"
#include "mp/function_table.h"
#include "mp/hand_over.h"
#include "mp/spawn_failure.h"
#include "support/thrown_error.h"

namespace dtrun::mp {
namespace {

using base::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ForkDangerTest, CudaInUseIsSeenByTheDriversFiles) {
  EXPECT_EQ(fork_danger(0, {"/dev/null", "socket:[1]"}, {}), std::nullopt);
  const auto danger = fork_danger(0, {"/dev/null", "/dev/nvidiactl"}, {});
  ASSERT_TRUE(danger);
  EXPECT_THAT(danger->what(), HasSubstr("fork after CUDA was initialized"));
  EXPECT_THAT(danger->why(), HasSubstr("/dev/nvidiactl"));
  EXPECT_THAT(danger->remedy(), HasSubstr("spawn or forkserver"));
}

TEST(ForkDangerTest, AJoinedJobAndThreadsAreNamed) {
  EXPECT_THAT(fork_danger(1, {}, {})->what(), HasSubstr("fork after init"));
  const auto danger = fork_danger(0, {}, {{12, "reader"}, {13, "writer"}});
  ASSERT_TRUE(danger);
  EXPECT_THAT(danger->why(), HasSubstr("12 'reader', 13 'writer'"));
}

TEST(ForkDangerTest, OpenFilesAreToldByName) {
  EXPECT_THAT(open_files(), testing::Contains(HasSubstr("/")));
}

base::Environment environment(std::map<std::string, std::string> variables) {
  base::Environment result;
  for (const auto& [name, value] : variables) result.set(name, value);
  return result;
}

TEST(ChildEnvironmentTest, AChildDoesNotSeeItsParentsPlaceInTheJob) {
  const auto started = environment({{"DTRUN_JOB_PAGE_FD", "5"},
                                    {"DTRUN_JOB_PAGE_ID", "1:2"},
                                    {"RANK", "1"},
                                    {"MASTER_ADDR", "n0"},
                                    {"MASTER_PORT", "1"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_THAT(variables_to_hide(started, started),
              ElementsAre("DTRUN_JOB_PAGE_FD", "DTRUN_JOB_PAGE_ID"));
  EXPECT_THAT(variables_to_hide(environment({}), environment({{"MASTER_PORT", "1"}})), IsEmpty());
}

TEST(ChildEnvironmentTest, TheLaunchersStoreIsForgottenWhereAnotherAddressIsSet) {
  const auto started = environment(
      {{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  auto now = started;
  now.set("MASTER_PORT", "2");
  EXPECT_THAT(variables_to_hide(started, now), ElementsAre("TORCHELASTIC_USE_AGENT_STORE"));
  now.unset("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_THAT(variables_to_hide(started, now), IsEmpty());
}

SpawnFailure killed(int rank) {
  return {rank,
          "",
          100,
          {.code = 0, .signal = 9, .dumped = false},
          {Outcome::State::kBegun, 0, std::nullopt, "", ""}};
}
SpawnFailure raised(int rank, std::int64_t time_ns, std::optional<ErrorCode> code = std::nullopt) {
  return {rank,
          "",
          100,
          {.code = 1, .signal = 0, .dumped = false},
          {Outcome::State::kRaised, time_ns, code, "dtrun::base::Error", "text"}};
}

TEST(SpawnFailureTest, TheCauseComesBeforeItsVictims) {
  EXPECT_TRUE(came_before(raised(1, 20), raised(0, 10, ErrorCode::kPeerFailed)));
  EXPECT_TRUE(came_before(killed(1), raised(0, 10)));
  EXPECT_TRUE(came_before(raised(1, 10), raised(0, 20)));
  EXPECT_FALSE(came_before(raised(1, 20), raised(0, 10)));
  EXPECT_TRUE(raised(0, 1, ErrorCode::kAborted).is_victim());
  EXPECT_FALSE(raised(0, 1, ErrorCode::kTimeout).is_victim());
}

TEST(SpawnFailureTest, AChildThatEndsWellWithoutHavingBegunHasFailed) {
  SpawnFailure failure = killed(2);
  failure.status = {};
  EXPECT_FALSE(failure.has_failed());
  failure.outcome.state = Outcome::State::kNotBegun;
  EXPECT_TRUE(failure.has_failed());
  const auto error =
      testing_support::error_of([&] { std::rethrow_exception(exception_of(failure)); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(),
              HasSubstr("process 2 (pid 100) ended with exit code 0 without having"));
}

TEST(HandOverTest, AChildThatWritesOverTheMemoryOrCutsItOffHasBegunAndSaysNothing) {
  for (const std::string& scribble : {std::string(), std::string(4096, '\xff')}) {
    const base::UniqueFd memory = make_hand_over();
    mark_begun(memory.get());
    ASSERT_EQ(::ftruncate(memory.get(), 0), 0);
    ASSERT_EQ(::pwrite(memory.get(), scribble.data(), scribble.size(), 0),
              static_cast<ssize_t>(scribble.size()));
    const Outcome outcome = read_outcome(memory.get());
    EXPECT_EQ(outcome.state, Outcome::State::kBegun);
    EXPECT_EQ(outcome.text, "");
  }
}

TEST(HandOverTest, AnExceptionIsReportedAsFarAsItIsStillThere) {
  const base::UniqueFd memory = make_hand_over();
  mark_begun(memory.get());
  write_raised(memory.get(), {Outcome::State::kRaised, 7, ErrorCode::kTimeout, "Type", "text"});
  const std::uint64_t any_length = ~std::uint64_t{0};
  ASSERT_EQ(::pwrite(memory.get(), &any_length, sizeof any_length, 8), 8);
  Outcome outcome = read_outcome(memory.get());
  EXPECT_EQ(outcome.error_code, ErrorCode::kTimeout);
  EXPECT_EQ(outcome.type, "Type");
  EXPECT_EQ(outcome.text, "text");
  const off_t whole = ::lseek(memory.get(), 0, SEEK_END);
  ASSERT_EQ(::ftruncate(memory.get(), whole - 6), 0);
  outcome = read_outcome(memory.get());
  EXPECT_EQ(outcome.state, Outcome::State::kRaised);
  EXPECT_EQ(outcome.type, "Type");
  EXPECT_THAT(outcome.text, HasSubstr("has overwritten"));
}

TEST(FunctionTableTest, ANameThatNobodyRegisteredIsRefused) {
  const auto error = testing_support::error_of([] { find_function("nobody"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kNotFound);
  EXPECT_THAT(error->what(), HasSubstr("'nobody'"));
}

}  // namespace
}  // namespace dtrun::mp
