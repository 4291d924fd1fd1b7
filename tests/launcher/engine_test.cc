#include "engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine_options.h"
#include "node_list.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;

TEST(NodeList, IsExpandedAsSlurmMeansIt) {
  EXPECT_THAT(expand_node_list("a"), ElementsAre("a"));
  EXPECT_THAT(expand_node_list("a[1-3,07-09],b"),
              ElementsAre("a1", "a2", "a3", "a07", "a08", "a09", "b"));
  EXPECT_THAT(expand_node_list("r[1-2]n[8-10]x"),
              ElementsAre("r1n8x", "r1n9x", "r1n10x", "r2n8x", "r2n9x", "r2n10x"));
  EXPECT_EQ(expand_node_list("n[0-999]").size(), 1000u);
}

TEST(NodeList, RefusesWhatIsMalformedOrHuge) {
  for (const char* text : {"", ",", "a,", "a[1-2", "a]1", "a[]", "a[2-1]", "a[1-]", "a[x]",
                           "n[1-999999999]", "n[0-9999]m[0-9999]", "a[1,,2]", "a[[1]]"}) {
    const auto error = error_of([&] { expand_node_list(text); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), base::ErrorCode::kUsage) << text;
  }
}

TEST(NodeList, CountsPerNodeMayRepeat) {
  EXPECT_THAT(expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(expand_counts("1"), ElementsAre(1));
  for (const char* text : {"", "2(x", "2(x3", "x", "1,", "1(x9999999)"})
    EXPECT_TRUE(error_of([&] { expand_counts(text); })) << text;
}

base::Environment slurm() {
  base::Environment environment;
  environment.set("SLURM_JOB_ID", "4097");
  environment.set("SLURM_STEP_ID", "0");
  environment.set("SLURM_PROCID", "2");
  environment.set("SLURM_NODEID", "2");
  environment.set("SLURM_STEP_NUM_NODES", "3");
  environment.set("SLURM_STEP_NODELIST", "node[9-11]");
  environment.set("SLURM_STEP_TASKS_PER_NODE", "1(x3)");
  environment.set("SLURM_GPUS_ON_NODE", "4");
  environment.set("SLURM_RESTART_COUNT", "1");
  return environment;
}

TEST(Engine, ASlurmStepTellsNodesPlaceHeadAndPort) {
  const auto engine = detect_engine(slurm());
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->name, "Slurm step 4097.0");
  EXPECT_EQ(engine->nodes, 3);
  EXPECT_EQ(engine->node_index, 2);
  EXPECT_EQ(engine->tasks_on_node, 1);
  EXPECT_EQ(engine->head_host, "node9");
  EXPECT_EQ(engine->port, 61441);
  EXPECT_EQ(engine->job_id, "4097");
  EXPECT_EQ(engine->gpus_on_node, 4);
  EXPECT_EQ(engine->restart_count, 1);
}

TEST(Engine, ABatchShellIsNoStep) {
  base::Environment environment = slurm();
  environment.unset("SLURM_PROCID");
  EXPECT_FALSE(detect_engine(environment));
  EXPECT_FALSE(detect_engine({}));
}

TEST(Engine, AStepThatContradictsItselfIsRefused) {
  for (const auto& [name, value] :
       {std::pair("SLURM_STEP_NUM_NODES", "2"), std::pair("SLURM_NODEID", "3"),
        std::pair("SLURM_NODEID", "x"), std::pair("SLURM_STEP_NODELIST", "node[9-")}) {
    base::Environment environment = slurm();
    environment.set(name, value);
    EXPECT_TRUE(error_of([&] { detect_engine(environment); })) << name << "=" << value;
  }
  base::Environment partial = slurm();
  partial.unset("SLURM_NODEID");
  const auto error = error_of([&] { detect_engine(partial); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("SLURM_NODEID is not set"));
}

TEST(Engine, MpirunInsideAnAllocationIsTheOneThatStartedUs) {
  base::Environment environment = slurm();
  environment.set("OMPI_COMM_WORLD_RANK", "1");
  environment.set("OMPI_COMM_WORLD_SIZE", "2");
  environment.set("OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  const auto engine = detect_engine(environment);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->name, "Open MPI");
  EXPECT_EQ(engine->nodes, 2);
  EXPECT_EQ(engine->node_index, 1);
  EXPECT_EQ(engine->head_host, "");
}

TEST(Engine, MpichIsKnownByItsPlaceOnTheNode) {
  base::Environment environment;
  environment.set("PMI_RANK", "3");
  EXPECT_FALSE(detect_engine(environment));
  environment.set("PMI_SIZE", "4");
  environment.set("MPI_LOCALRANKID", "0");
  environment.set("MPI_LOCALNRANKS", "2");
  const auto engine = detect_engine(environment);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->tasks_on_node, 2);
}

CommandLine given(std::map<std::string, std::string> values) {
  CommandLine line;
  for (auto& [name, value] : values) line.values[name] = {value, "--" + name};
  return line;
}

TEST(EngineOptions, StandInForThoseThatNobodyGave) {
  CommandLine line;
  add_engine_options(*detect_engine(slurm()), line);
  EXPECT_EQ(line.values.at("nnodes").value, "3");
  EXPECT_EQ(line.values.at("node-rank").value, "2");
  EXPECT_EQ(line.values.at("rdzv-backend").value, "c10d");
  EXPECT_EQ(line.values.at("rdzv-endpoint").value, "node9:61441");
  EXPECT_EQ(line.values.at("rdzv-id").value, "4097");
  EXPECT_EQ(line.values.at("nproc-per-node").value, "4");
}

TEST(EngineOptions, GiveWayToTheUsers) {
  for (const char* name : {"nnodes", "rdzv-endpoint", "standalone", "master-addr"}) {
    CommandLine line = given({{name, "7"}, {"nproc-per-node", "1"}});
    add_engine_options(*detect_engine(slurm()), line);
    EXPECT_EQ(line.values.size(), 2u) << name;
  }
}

TEST(EngineOptions, OneNodeNeedsNoneToMeet) {
  Engine engine;
  engine.name = "Slurm step 1.0";
  CommandLine line;
  add_engine_options(engine, line);
  EXPECT_TRUE(line.values.empty());
}

TEST(EngineOptions, SeveralDtrunsOnANodeAreRefusedUnlessTheUserSaysHow) {
  Engine engine;
  engine.name = "Slurm step 1.0";
  engine.tasks_on_node = 4;
  CommandLine line;
  const auto error = error_of([&] { add_engine_options(engine, line); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("Slurm step 1.0 has started 4 dtruns on this node"));
  EXPECT_THAT(error->what(), HasSubstr("--nproc_per_node=4"));
  CommandLine alone = given({{"standalone", "1"}});
  EXPECT_FALSE(error_of([&] { add_engine_options(engine, alone); }));
}

TEST(EngineOptions, AnEngineThatTellsNoHeadAsksForOne) {
  Engine engine;
  engine.name = "Open MPI";
  engine.nodes = 2;
  CommandLine line;
  const auto error = error_of([&] { add_engine_options(engine, line); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("does not tell where they can meet"));
}

}  // namespace
}  // namespace dtrun::launcher
