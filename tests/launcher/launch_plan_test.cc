// What is decided before a job begins, on machines that are made up: the program's path is of no
// file, and nothing of the machine that the tests run on shows.
#include "plan/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/fake_realm.h"
#include "sources/option_sources.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::error_of;
using Words = std::vector<std::string>;

// Two sockets of four cores, each of them a NUMA node; a core has two threads.
MachineTopology two_sockets() {
  MachineTopology topology;
  for (int id = 0; id < 16; ++id) {
    const int core = id % 8, socket = core / 4;
    topology.cpus.push_back(
        {.id = id, .core = core, .cache = socket * 4, .node = socket, .package = socket});
  }
  return topology;
}

// No terminal, no GPU, no munged; one program, of which nothing but its place is known.
MachineFacts machine() {
  MachineFacts facts;
  facts.programs = {{.gpus = 0, .cpus = 16, .path = "/made/up/program"}};
  facts.open_files = {.rlim_cur = 1024, .rlim_max = 4096};
  facts.fresh_run_id = "0123456789abcdef";
  facts.topology = two_sockets();
  return facts;
}

struct Line {
  Words words;
  std::map<std::string, std::string> variables{};
  std::string name = "dtrun";
};

LaunchPlan planned(const Line& line, const MachineFacts& facts) {
  base::Environment environment;
  for (const auto& [name, value] : line.variables) environment.set(name, value);
  Words words = line.words;
  words.push_back("program");
  return make_plan(parse_options(line.name, words, environment), environment, facts);
}

std::string refusal(const Line& line, const MachineFacts& facts) {
  const auto error = error_of([&] { planned(line, facts); });
  return error ? error->what() : "";
}

const Words kTwoNodes = {"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=h:1"};

Words on_two_nodes(Words words) {
  words.insert(words.begin(), kTwoNodes.begin(), kTwoNodes.end());
  return words;
}

TEST(LaunchPlan, TheSameFactsGiveTheSamePlan) {
  const LaunchPlan plan = planned({{"--nproc_per_node=2"}}, machine());
  EXPECT_EQ(plan.local_ranks, 2);
  EXPECT_EQ(plan.run_id, "0123456789abcdef");
  EXPECT_EQ(plan.programs[0].command.path, "/made/up/program");
  EXPECT_THAT(plan.programs[0].command.arguments, ElementsAre("program"));
  EXPECT_EQ(planned({{"--nproc_per_node=2"}}, machine()).programs[0].command.environment,
            plan.programs[0].command.environment);
}

TEST(LaunchPlan, ANodeHasAsManyRanksAsItHasRoomFor) {
  MachineFacts facts = machine();
  EXPECT_EQ(planned({{"--nproc_per_node=cpu"}}, facts).local_ranks, 16);
  EXPECT_EQ(planned({{"--nproc_per_node=auto"}}, facts).local_ranks, 16);
  EXPECT_THAT(refusal({{"--nproc_per_node=gpu"}, {{"CUDA_VISIBLE_DEVICES", ""}}}, facts),
              AllOf(HasSubstr("no GPU here"), HasSubstr("CUDA_VISIBLE_DEVICES='' is in force")));
  facts.programs[0].gpus = 4;
  EXPECT_EQ(planned({{"--nproc_per_node=gpu"}}, facts).local_ranks, 4);
  EXPECT_EQ(planned({{"--nproc_per_node=auto"}}, facts).local_ranks, 4);
}

TEST(LaunchPlan, RanksAreBoundToTheSocketsOfTheMachine) {
  const Words by_socket = {"--nproc_per_node=4", "--numa-binding=socket", "--omp-threads=share"};
  const LaunchPlan plan = planned({by_socket}, machine());
  ASSERT_EQ(plan.bindings.size(), 4u);
  EXPECT_THAT(plan.bindings[0].cpus, ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_EQ(plan.bindings[1], plan.bindings[0]);
  EXPECT_THAT(plan.bindings[3].cpus, ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  EXPECT_EQ(plan.bindings[3].memory_node, 1);
  EXPECT_THAT(plan.omp_shares, ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(LaunchPlan, WithoutBindingAllCoresAreShared) {
  const LaunchPlan plan = planned({{"--nproc_per_node=3", "--omp-threads=share"}}, machine());
  EXPECT_THAT(plan.omp_shares, ElementsAre(2, 2, 2));
  EXPECT_TRUE(plan.bindings[0].cpus.empty());
}

TEST(LaunchPlan, MemoryThatMayNotBeBoundIsLeftOut) {
  const Words by_node = {"--nproc_per_node=2", "--numa-binding=node"};
  MachineFacts facts = machine();
  facts.memory.nodes = {0};
  const LaunchPlan half = planned({by_node}, facts);
  EXPECT_EQ(half.bindings[0].memory_node, 0);
  EXPECT_EQ(half.bindings[1].memory_node, std::nullopt);
  EXPECT_THAT(half.warnings, ElementsAre(HasSubstr("local rank 1: its CPUs are of NUMA node 1")));
  facts.memory = {.nodes = {}, .refusal = "Operation not permitted"};
  const LaunchPlan none = planned({by_node}, facts);
  EXPECT_EQ(none.bindings[0].memory_node, std::nullopt);
  EXPECT_EQ(none.bindings[0].cpus.size(), 8u);
  EXPECT_THAT(none.warnings, ElementsAre(HasSubstr("set_mempolicy: Operation not permitted")));
}

TEST(LaunchPlan, MoreRanksThanCoresCannotEachHaveTheirOwn) {
  EXPECT_THAT(refusal({{"--nproc_per_node=9", "--numa-binding=exclusive"}}, machine()),
              HasSubstr("share a NUMA node of 4 cores"));
}

TEST(LaunchPlan, ALowLimitOfOpenFilesIsRefusedBeforeAnyRankStarts) {
  MachineFacts facts = machine();
  facts.open_files = {.rlim_cur = 100, .rlim_max = 100};
  EXPECT_EQ(planned({{"--nproc_per_node=2"}}, facts).programs[0].command.open_files_soft_limit,
            100u);
  EXPECT_THAT(refusal({{"--nproc_per_node=64"}}, facts),
              AllOf(HasSubstr("64 ranks need 256 open files"), HasSubstr("the limit is 100")));
}

TEST(LaunchPlan, MungeIsTheProofOfSeveralNodesWhereItRuns) {
  const auto realm_of = [](const LaunchPlan& plan) {
    const auto* const realm = std::get_if<std::shared_ptr<rendezvous::Realm>>(&plan.proof);
    return realm != nullptr ? realm->get() : nullptr;
  };
  const auto is_open = [](const LaunchPlan& plan) {
    return std::holds_alternative<std::monostate>(plan.proof);
  };
  MachineFacts facts = machine();
  EXPECT_TRUE(is_open(planned({kTwoNodes}, facts)));
  const auto sealed = std::make_shared<rendezvous::FakeRealm::Ledger>();
  facts.munge = std::make_shared<rendezvous::FakeRealm>(sealed, 0);
  EXPECT_EQ(realm_of(planned({kTwoNodes}, facts)), facts.munge.get());
  EXPECT_EQ(realm_of(planned({on_two_nodes({"--rdzv_conf=token=munge"})}, facts)),
            facts.munge.get());
  EXPECT_TRUE(sealed->empty());
  EXPECT_TRUE(is_open(planned({{}}, facts))) << "no other agent can come";
  EXPECT_TRUE(is_open(planned({on_two_nodes({"--rdzv_conf=token=none"})}, facts)));
  const LaunchPlan with_token =
      planned({kTwoNodes, {{"DTRUN_TOKEN", "a-token-of-this-test"}}}, facts);
  EXPECT_TRUE(std::holds_alternative<rendezvous::Token>(with_token.proof));
}

TEST(LaunchPlan, TheStoreAsksForATokenIfTheProgramPresentsIt) {
  const Line line{kTwoNodes, {{"DTRUN_TOKEN", "a-token-of-this-test"}}};
  MachineFacts facts = machine();
  const LaunchPlan without = planned(line, facts);
  EXPECT_TRUE(without.store_token.empty());
  EXPECT_THAT(without.options.notes, Contains(HasSubstr("/made/up/program is no program with")));
  facts.programs[0].presents_store_token = true;
  EXPECT_EQ(planned(line, facts).store_token.size(), 64u);
  MachineFacts with_file = facts;
  with_file.file_token.emplace("a-token-of-this-test", "a file");
  const Line by_file{on_two_nodes({"--rdzv_conf=token_file=/made/up/token"})};
  EXPECT_EQ(planned(by_file, with_file).store_token, planned(line, facts).store_token);
}

TEST(LaunchPlan, OnATerminalThereIsAStatusLineUnlessItsReaderIsBehindAPipe) {
  const auto shown = [](const MachineFacts& facts, Words words = {}) {
    return planned({std::move(words), {{"TERM", "xterm"}}}, facts).shows_status;
  };
  MachineFacts facts = machine();
  EXPECT_FALSE(shown(facts));
  EXPECT_FALSE(planned({{}}, facts).may_stand_on_status());
  facts.streams.error_is_terminal = true;
  EXPECT_TRUE(shown(facts));
  EXPECT_FALSE(shown(facts, {"-v"}));
  EXPECT_FALSE(shown(facts, {"--status=never"}));
  facts.streams.output_is_pipe = true;
  EXPECT_FALSE(shown(facts));
}

TEST(LaunchPlan, RankZeroReadsStandardInputUnlessTheShellHasIt) {
  MachineFacts facts = machine();
  EXPECT_EQ(planned({{}}, facts).options.output.stdin_rank, 0);
  EXPECT_EQ(planned({kTwoNodes}, facts).options.output.stdin_rank, std::nullopt);
  facts.streams = {.input_is_terminal = true, .input_is_the_shells = true};
  EXPECT_EQ(planned({{}}, facts).options.output.stdin_rank, std::nullopt);
  EXPECT_EQ(planned({{"--stdin=0"}}, facts).options.output.stdin_rank, 0);
}

TEST(LaunchPlan, ADebuggedRankNeedsATerminalAndItsDebugger) {
  const Words debugged = {"--nproc_per_node=2", "--debug-rank=1"};
  MachineFacts facts = machine();
  EXPECT_THAT(refusal({debugged}, facts), HasSubstr("standard input and output are no terminal"));
  facts.streams = {.input_is_terminal = true, .output_is_terminal = true};
  facts.gdb =
      base::SpawnError({base::ErrorCode::kNotFound, "cannot find gdb", "not there"}, ENOENT);
  EXPECT_THAT(refusal({debugged}, facts),
              AllOf(HasSubstr("needs gdb, which is not in PATH"), HasSubstr("not there")));
  facts.gdb = "/made/up/gdb";
  const LaunchPlan plan = planned({debugged}, facts);
  EXPECT_EQ(plan.debug_command.path, "/made/up/gdb");
  EXPECT_THAT(plan.debug_command.arguments, Contains("/made/up/program"));
}

TEST(LaunchPlan, UnderTorchrunsNameAFileThatCannotBeExecutedIsPythons) {
  MachineFacts facts = machine();
  const Line line{{}, {{"PYTHON_EXEC", "my-python"}}, "torchrun"};
  EXPECT_THAT(planned(line, facts).programs[0].command.arguments, ElementsAre("program"));
  facts.programs[0] = {.is_data_file = true, .path = "/made/up/python"};
  const LaunchPlan plan = planned(line, facts);
  EXPECT_EQ(plan.programs[0].command.path, "/made/up/python");
  EXPECT_THAT(plan.programs[0].command.arguments, ElementsAre("my-python", "-u", "program"));
}

}  // namespace
}  // namespace dtrun::launcher
