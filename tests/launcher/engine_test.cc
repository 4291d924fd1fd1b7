#include "engines/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "dtrun/base/socket.h"
#include "engines/engine_table.h"
#include "engines/node_list.h"
#include "engines/pals_places.h"
#include "sources/engine_options.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
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

using Variables = std::map<std::string, std::string>;

base::Environment with(const Variables& variables) {
  base::Environment environment;
  for (const auto& [name, value] : variables) environment.set(name, value);
  return environment;
}

Variables slurm(Variables others = {}) {
  Variables result = {{"SLURM_JOB_ID", "4097"},      {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "2"},         {"SLURM_NODEID", "2"},
                      {"SLURM_LOCALID", "0"},        {"SLURM_STEP_NUM_NODES", "3"},
                      {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_STEP_NODELIST", "node[9-11]"},
                      {"SLURM_GPUS_ON_NODE", "4"},   {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                      {"SLURM_JOB_NUM_NODES", "3"},  {"SLURM_JOB_NODELIST", "node[9-11]"}};
  for (auto& [name, value] : others) result[name] = value;
  return result;
}

// Two nodes of two.
Variables slurm_ranks() {
  return slurm({{"SLURM_PROCID", "3"},
                {"SLURM_NODEID", "1"},
                {"SLURM_LOCALID", "1"},
                {"SLURM_STEP_NUM_NODES", "2"},
                {"SLURM_STEP_NUM_TASKS", "4"},
                {"SLURM_STEP_NODELIST", "node[9-10]"},
                {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
}

TEST(Engine, ASlurmStepTellsNodesPlaceHeadAndPort) {
  const auto engine = detect_engine(with(slurm()));
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->describe(), "Slurm step 4097.0: task 2 of 3");
  EXPECT_EQ(engine->nodes, 3);
  EXPECT_EQ(engine->node, 2);
  EXPECT_EQ(engine->tasks_on_node, 1);
  EXPECT_EQ(engine->head_host, "node9");
  EXPECT_EQ(engine->port, 61441);
  EXPECT_EQ(engine->run_id, "4097.0");
  EXPECT_EQ(engine->gpus_on_node, 4);
}

TEST(Engine, StepsAndLivesOfOneSlurmJobAreKeptApart) {
  const auto second = detect_engine(with(
      slurm({{"SLURM_STEP_ID", "1"}, {"SLURM_RESTART_COUNT", "2"}, {"SLURM_STEP_GPUS", "1,3-4"}})));
  ASSERT_TRUE(second);
  EXPECT_NE(second->port, 61441);
  EXPECT_EQ(second->run_id, "4097.1.2");
  EXPECT_EQ(second->gpus_on_node, 3);
  EXPECT_EQ(detect_engine(with(slurm({{"SLURM_JOB_ID", "67108863"}})))->run_id, "67108863.0");
}

TEST(Engine, AShellOfSlurmsIsNoStep) {
  for (const Variables& others :
       {Variables{{"SLURM_STEP_NODELIST", ""}}, Variables{{"SLURM_PROCID", ""}},
        // The step that salloc makes for its shell.
        Variables{{"SLURM_STEP_ID", "4294967290"}}})
    EXPECT_FALSE(detect_engine(with(slurm(others)))) << others.begin()->first;
  EXPECT_FALSE(detect_engine({}));
}

TEST(Engine, ARankThatStartsAJobOfItsOwnWasNotStartedByTheEngine) {
  EXPECT_FALSE(detect_engine(with(slurm({{"TORCHELASTIC_RUN_ID", "4097.0"}}))));
}

TEST(Engine, AStepThatContradictsItselfIsRefused) {
  for (const auto& [name, value] :
       {std::pair("SLURM_STEP_NUM_NODES", "2"), std::pair("SLURM_NODEID", "3"),
        std::pair("SLURM_NODEID", "x"), std::pair("SLURM_NODEID", "-1"),
        std::pair("SLURM_STEP_NODELIST", "node[9-"), std::pair("SLURM_PROCID", "3"),
        std::pair("SLURM_LOCALID", "1"), std::pair("SLURM_STEP_GPUS", "0-")}) {
    EXPECT_TRUE(error_of([&] {
      detect_engine(with(slurm({{name, value}})));
    })) << name
        << "=" << value;
  }
  const auto partial = error_of([&] { detect_engine(with(slurm({{"SLURM_NODEID", ""}}))); });
  ASSERT_TRUE(partial);
  EXPECT_THAT(partial->what(), HasSubstr("SLURM_NODEID is not set"));
  const auto several = error_of([&] { detect_engine(with(slurm({{"SLURM_HET_SIZE", "2"}}))); });
  ASSERT_TRUE(several);
  EXPECT_THAT(several->what(), HasSubstr("heterogeneous job of 2 components"));
}

// One line of docs/engines.md: what the engine sets, what dtrun makes of it.
struct Told {
  const char* key;
  Variables variables;
  const char* described;
  std::optional<int> node, nodes;
  int tasks_on_node;
  std::string head;
};

const std::vector<Told> kTold = {
    {"openmpi",
     {{"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMIX_NAMESPACE", "3126263809"},
      {"PMIX_RANK", "1"}},
     "Open MPI: task 1 of 2",
     0,
     1,
     2,
     "127.0.0.1:61533"},
    {"mvapich",
     {{"MV2_COMM_WORLD_RANK", "2"},
      {"MV2_COMM_WORLD_SIZE", "4"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
      {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMI_RANK", "2"},
      {"MPI_LOCALRANKID", "0"},
      {"MASTER_ADDR", "h1"}},
     "MVAPICH: task 2 of 4",
     1,
     2,
     2,
     "h1"},
    {"mpich",
     {{"PMI_RANK", "3"},
      {"PMI_SIZE", "4"},
      {"MPI_LOCALRANKID", "1"},
      {"MPI_LOCALNRANKS", "2"},
      {"MASTER_ADDR", "h1"},
      {"MASTER_PORT", "7"}},
     "MPICH: task 3 of 4",
     1,
     2,
     2,
     "h1:7"},
    {"mpich-port",
     {{"PMI_PORT", "h0:39973"},
      {"PMI_ID", "3"},
      {"MPI_LOCALRANKID", "1"},
      {"MPI_LOCALNRANKS", "2"},
      {"MASTER_ADDR", "h1"}},
     // How many there are is told at the port.
     "MPICH: task 3",
     std::nullopt,
     std::nullopt,
     2,
     "h1"},
    {"jsrun",
     {{"JSM_NAMESPACE_RANK", "1"},
      {"JSM_NAMESPACE_SIZE", "4"},
      {"JSM_NAMESPACE_LOCAL_RANK", "0"},
      {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
      {"LSB_JOBID", "7"},
      {"LSB_MCPU_HOSTS", "batch5 1 h1 42 h2 42"}},
     // Dealt out in turn.
     "LSF's jsrun: task 1 of 4",
     1,
     2,
     2,
     "h1:62454"},
    {"flux",
     {{"FLUX_TASK_RANK", "3"},
      {"FLUX_JOB_SIZE", "4"},
      {"FLUX_TASK_LOCAL_ID", "1"},
      {"FLUX_JOB_NNODES", "2"},
      {"FLUX_JOB_ID", "f1"},
      {"MASTER_ADDR", "h1"}},
     "Flux: task 3 of 4",
     1,
     2,
     2,
     "h1:64888"},
    {"pals",
     {{"PALS_RANKID", "3"},
      {"PMI_SIZE", "4"},
      {"PALS_LOCAL_RANKID", "1"},
      {"PALS_LOCAL_SIZE", "2"},
      {"MASTER_ADDR", "h1"}},
     "Cray PALS: task 3 of 4",
     1,
     2,
     2,
     "h1"},
    {"pmix",
     {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-h1-7@1"}, {"MASTER_ADDR", "h1"}},
     "PMIx: task 3",
     std::nullopt,
     std::nullopt,
     1,
     "h1:62040"},
    {"sagemaker",
     {{"SM_HOSTS", R"(["algo-1","algo-2"])"}, {"SM_CURRENT_HOST", "algo-2"}, {"SM_NUM_GPUS", "8"}},
     "SageMaker: node 1 of 2",
     1,
     2,
     1,
     "algo-1"},
    {"aws-batch",
     {{"AWS_BATCH_JOB_NODE_INDEX", "0"},
      {"AWS_BATCH_JOB_NUM_NODES", "3"},
      {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "1"},
      {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.7"}},
     "AWS Batch: node 2 of 3",
     2,
     3,
     1,
     "10.0.0.7"},
    {"skypilot",
     {{"SKYPILOT_NODE_RANK", "1"},
      {"SKYPILOT_NUM_NODES", "2"},
      {"SKYPILOT_NUM_GPUS_PER_NODE", "8"},
      {"SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2"}},
     "SkyPilot: node 1 of 2",
     1,
     2,
     1,
     "10.0.0.1"},
    {"lws",
     {{"LWS_LEADER_ADDRESS", "w-0.w.default"}, {"LWS_WORKER_INDEX", "1"}, {"LWS_GROUP_SIZE", "2"}},
     "LeaderWorkerSet: node 1 of 2",
     1,
     2,
     1,
     "w-0.w.default"},
    {"indexed-job",
     {{"JOB_COMPLETION_INDEX", "1"}},
     "Kubernetes Indexed Job: node 1",
     std::nullopt,
     std::nullopt,
     1,
     ""},
    {"pytorchjob",
     {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "j-master-0"}, {"MASTER_PORT", "23456"}},
     "PyTorchJob: node 1 of 2",
     1,
     2,
     1,
     "j-master-0:23456"},
};

TEST(Engine, EachIsKnownByItsVariables) {
  for (const Told& told : kTold) {
    const auto engine = detect_engine(
        with(told.variables), std::string_view(told.key) == "pytorchjob" ? told.key : "auto");
    ASSERT_TRUE(engine) << told.key;
    EXPECT_EQ(engine->key, told.key);
    EXPECT_EQ(engine->describe(), told.described);
    EXPECT_EQ(engine->node, told.node) << told.key;
    EXPECT_EQ(engine->nodes, told.nodes) << told.key;
    EXPECT_EQ(engine->tasks_on_node, told.tasks_on_node) << told.key;
    EXPECT_EQ((base::HostPort{engine->head_host, engine->port}.to_string()), told.head) << told.key;
  }
  // And the table has no row besides.
  EXPECT_EQ(kTold.size() + 1, engine_table().size());
}

// MASTER_ADDR goes before.
TEST(Engine, WhoSpeaksPmiIsAskedWhereNobodyNamesTheHead) {
  for (const Told& told : kTold) {
    const std::string_view key = told.key;
    Variables variables = told.variables;
    variables["PMI_FD"] = "9";
    if (key == "mpich" || key == "mpich-port" || key == "mvapich" || key == "flux" ||
        key == "pals") {
      EXPECT_EQ(detect_engine(with(variables))->pmi_fd, std::nullopt) << key;
      variables.erase("MASTER_ADDR");
      variables.erase("MASTER_PORT");
      EXPECT_EQ(detect_engine(with(variables))->pmi_fd, 9) << key;
    } else if (key != "pytorchjob") {
      EXPECT_EQ(detect_engine(with(variables))->pmi_fd, std::nullopt) << key;
    }
  }
}

TEST(Engine, IntelsHydraIsCalledByItsName) {
  Variables variables = kTold[2].variables;
  variables["I_MPI_MPIRUN"] = "mpirun";
  const auto engine = detect_engine(with(variables));
  EXPECT_EQ(engine->key, "mpich");
  EXPECT_EQ(engine->describe(), "Intel MPI: task 3 of 4");
}

// Slurm's mpi/cray_shasta: its steps are Slurm's.
TEST(Engine, ThePalsOfSlurmIsSlurm) {
  Variables both = slurm({{"PALS_RANKID", "2"}, {"PMI_SIZE", "3"}, {"PALS_APID", "4097.0"}});
  EXPECT_EQ(detect_engine(with(both))->key, "slurm");
  both["PALS_APID"] = "7f3a";
  EXPECT_EQ(detect_engine(with(both))->key, "pals");
}

// The file of PALS: a header, four words each of command, task, node.
struct PalsFile {
  std::int32_t version = 5;
  std::vector<std::int32_t> node_of_task = {1, 1, 0, 0};
  std::vector<std::string> hosts = {"x1000c0s0b0n0", "x1000c0s1b0n0"};
  std::size_t header_bytes = 160;  // of version 5; of version 1: 136

  std::string bytes() const {
    const std::size_t tasks_at = header_bytes, nodes_at = tasks_at + 12 * node_of_task.size();
    const std::size_t total = nodes_at + 68 * hosts.size();
    std::string file(total, '\0');
    const auto put = [&](std::size_t at, auto value) {
      std::memcpy(file.data() + at, &value, sizeof value);
    };
    put(0, version);
    put(8, std::uint64_t{total});
    put(64, std::uint64_t{12});
    put(72, std::uint64_t{tasks_at});
    put(80, static_cast<std::int32_t>(node_of_task.size()));
    put(88, std::uint64_t{68});
    put(96, std::uint64_t{nodes_at});
    put(104, static_cast<std::int32_t>(hosts.size()));
    for (std::size_t i = 0; i < node_of_task.size(); ++i)
      put(tasks_at + 12 * i + 8, node_of_task[i]);
    for (std::size_t i = 0; i < hosts.size(); ++i)
      hosts[i].copy(file.data() + nodes_at + 68 * i + 4, 64);
    return file;
  }
};

TEST(PalsPlaces, TellWhereTheTasksAre) {
  for (const PalsFile& file : {PalsFile{}, PalsFile{.version = 1, .header_bytes = 136}}) {
    const PalsPlaces places = read_pals_places(file.bytes(), 3);
    EXPECT_EQ(places.head_host, "x1000c0s1b0n0");
    EXPECT_EQ(places.nodes, 2);
    EXPECT_EQ(places.node, 0);
  }
}

TEST(PalsPlaces, AreRefusedWhereTheFileContradictsItself) {
  const std::string whole = PalsFile{}.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_TRUE(error_of([&] { read_pals_places(whole.substr(0, size), 0); })) << size;
  for (const std::size_t at : {0, 8, 64, 72, 80, 88, 96, 104}) {
    std::string wrong = whole;
    wrong.replace(at, 4, "\xff\xff\xff\xff");
    EXPECT_TRUE(error_of([&] { read_pals_places(wrong, 0); })) << at;
  }
  for (const PalsFile& file : {PalsFile{.node_of_task = {2}}, PalsFile{.node_of_task = {-1}},
                               PalsFile{.hosts = {"", ""}}, PalsFile{.node_of_task = {0, 2}}})
    EXPECT_TRUE(error_of([&] { read_pals_places(file.bytes(), 1); }));
  EXPECT_TRUE(error_of([&] { read_pals_places(whole, 4); }));
  EXPECT_TRUE(error_of([&] { read_pals_places(whole, -1); }));
}

TEST(Engine, TheInnermostIsTheOneThatStartedUs) {
  Variables both = slurm(kTold[0].variables);
  EXPECT_EQ(detect_engine(with(both))->key, "openmpi");
  // On several nodes of an allocation mpirun begins with the first.
  both["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  both["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_EQ(detect_engine(with(both))->head_host, "node9");
  EXPECT_EQ(detect_engine(with(both), "slurm")->key, "slurm");
  EXPECT_FALSE(detect_engine(with(both), "none"));
}

TEST(Engine, PodsOfAPyTorchJobAreTakenForNodesOnlyIfAsked) {
  const Variables pod = kTold.back().variables;
  EXPECT_FALSE(detect_engine(with(pod)));
  Variables master = pod;
  master["RANK"] = "0";
  master["MASTER_ADDR"] = "localhost";
  EXPECT_TRUE(detect_engine(with(master), "pytorchjob")->head_is_here);
}

TEST(Engine, TheNodeIsUnknownWhereItCannotBeFoundOut) {
  // Three tasks, two of them here.
  const auto engine = detect_engine(with({{"OMPI_COMM_WORLD_RANK", "1"},
                                          {"OMPI_COMM_WORLD_SIZE", "3"},
                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  ASSERT_TRUE(engine);
  EXPECT_FALSE(engine->node);
}

TEST(Engine, OneThatIsNamedMustBeThere) {
  const auto absent = error_of([&] { detect_engine(with({{"SLURM_JOB_ID", "1"}}), "slurm"); });
  ASSERT_TRUE(absent);
  EXPECT_THAT(absent->what(), HasSubstr("not set: SLURM_PROCID, SLURM_STEP_NODELIST"));
  EXPECT_THAT(absent->what(), HasSubstr("srun --ntasks-per-node=1 dtrun"));
  const auto unknown = error_of([&] { detect_engine({}, "slrum"); });
  ASSERT_TRUE(unknown);
  EXPECT_THAT(unknown->what(), HasSubstr("one of auto, none, openmpi"));
}

TEST(Engine, WithMoreDtrunsOnANodeThanThereCanBeIsNotBelieved) {
  const auto error = error_of([&] {
    detect_engine(with({{"OMPI_COMM_WORLD_RANK", "0"},
                        {"OMPI_COMM_WORLD_SIZE", "2147483647"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2147483647"}}));
  });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("65536 are the most"));
}

TEST(Engine, HostsOfSageMakerMustBeAListWithThisOne) {
  for (const char* hosts : {"algo-1", "\"algo-1\"", "[1]", "[\"algo-2\"]", "[]", "[\"algo-1\""}) {
    const auto error = error_of([&] {
      detect_engine(with({{"SM_HOSTS", hosts}, {"SM_CURRENT_HOST", "algo-1"}}));
    });
    ASSERT_TRUE(error) << hosts;
    EXPECT_EQ(error->code(), base::ErrorCode::kUsage) << hosts;
    EXPECT_THAT(error->remedy(), HasSubstr("a JSON list")) << hosts;
  }
}

// "--nnodes=2 --node_rank=1", without the program.
CommandLine line_of(const std::string& words) {
  std::vector<std::string> arguments;
  std::istringstream in(words);
  for (std::string word; in >> word;) arguments.push_back(word);
  return read_command_line(arguments, {});
}

// What the engine makes of a line: "nnodes=3 node-rank=2 ..."; or "error: ...".
std::string line_with(const Variables& variables, const std::string& words) {
  CommandLine line = line_of(words);
  try {
    add_engine_options(with(variables), line);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kUsage);
    return std::string("error: ") + error.what();
  }
  std::string result;
  for (const auto& [name, value] : line.values)
    result += (result.empty() ? "" : " ") + name + "=" + value.value;
  return result;
}

TEST(EngineOptions, StandInForThoseThatNobodyGave) {
  EXPECT_EQ(line_with(slurm(), ""),
            "nnodes=3 node-rank=2 nproc-per-node=4 rdzv-backend=c10d rdzv-endpoint=node9:61441 "
            "rdzv-id=4097.0");
  EXPECT_EQ(line_with(slurm(), "--nnodes=3 --nproc_per_node=1"),
            "nnodes=3 node-rank=2 nproc-per-node=1 rdzv-backend=c10d rdzv-endpoint=node9:61441 "
            "rdzv-id=4097.0");
  // Nodes that come and go get their numbers from the head.
  EXPECT_EQ(line_with(slurm(), "--nnodes=1:3"),
            "nnodes=1:3 nproc-per-node=4 rdzv-backend=c10d rdzv-endpoint=node9:61441 "
            "rdzv-id=4097.0");
  EXPECT_EQ(line_with(slurm(), "--rdzv_backend=c10d --rdzv_endpoint=node9:7"),
            "nnodes=3 nproc-per-node=4 rdzv-backend=c10d rdzv-endpoint=node9:7");
  EXPECT_EQ(line_with(slurm(), "--rdzv_backend=c10d --rdzv_conf=store_type=file"),
            "nnodes=3 nproc-per-node=4 rdzv-backend=c10d rdzv-conf=store_type=file");
  EXPECT_EQ(line_with(slurm(), "--rdzv_backend=etcd-v2 --rdzv_endpoint=e:1"),
            "nnodes=3 nproc-per-node=4 rdzv-backend=etcd-v2 rdzv-endpoint=e:1");
  EXPECT_EQ(line_with(slurm(), "--master_addr=node9"),
            "master-addr=node9 nnodes=3 node-rank=2 nproc-per-node=4");
  EXPECT_EQ(line_with(slurm(), "--rdzv_backend=static"),
            "master-addr=node9 master-port=61441 nnodes=3 node-rank=2 nproc-per-node=4 "
            "rdzv-backend=static");
  EXPECT_EQ(line_with(slurm(), "--standalone"), "nproc-per-node=4 standalone=1");
  EXPECT_EQ(line_with(slurm(), "--scheduler=none"), "scheduler=none");
  EXPECT_EQ(line_with({}, ""), "");
  EXPECT_EQ(line_with({{"JOB_COMPLETION_INDEX", "1"}}, "--nnodes=2 --master_addr=j-0.s"),
            "master-addr=j-0.s nnodes=2 node-rank=1");
  EXPECT_EQ(line_with({{"JOB_COMPLETION_INDEX", "1"}}, ""), "");
}

// Whoever has started dtrun there, and though nothing else is taken from it.
TEST(EngineOptions, SignalsOfSlurmComeToTheRanksToo) {
  const auto wait = [](const Variables& variables, const std::string& words) {
    CommandLine line = line_of(words);
    line.program = {"app"};
    line.engine = add_engine_options(with(variables), line);
    return read_options("dtrun", std::move(line), with(variables)).shared_signal_wait;
  };
  EXPECT_GT(wait(slurm(), ""), std::chrono::milliseconds(0));
  EXPECT_GT(wait({{"SLURM_JOB_ID", "7"}}, "--scheduler=none"), std::chrono::milliseconds(0));
  EXPECT_EQ(wait({}, "").count(), 0);
}

TEST(EngineOptions, OneNodeNeedsNoneToMeet) {
  const Variables one = slurm({{"SLURM_STEP_NUM_NODES", "1"},
                               {"SLURM_STEP_NUM_TASKS", "1"},
                               {"SLURM_STEP_NODELIST", "node9"},
                               {"SLURM_STEP_TASKS_PER_NODE", "1"},
                               {"SLURM_NODEID", "0"},
                               {"SLURM_GPUS_ON_NODE", ""},
                               {"SLURM_PROCID", "0"}});
  EXPECT_EQ(line_with(one, ""), "");
  // One step per node.
  EXPECT_EQ(line_with(one, "--nnodes=2 --node_rank=1 --master_addr=h"),
            "master-addr=h nnodes=2 node-rank=1");
}

TEST(EngineOptions, WhatContradictsTheEngineIsRefused) {
  EXPECT_THAT(line_with(slurm(), "--nnodes=2"),
              AllOf(HasSubstr("--nnodes=2, but Slurm step 4097.0 has started dtrun on 3 nodes"),
                    HasSubstr("without some of them"), HasSubstr("--nnodes=2:3")));
  EXPECT_THAT(line_with(slurm(), "--nnodes=4 --rdzv_endpoint=h:1 --rdzv_backend=c10d"),
              AllOf(HasSubstr("nodes that were not started"), HasSubstr("--nnodes=3:4 ")));
  EXPECT_THAT(line_with(slurm(), "--nnodes=1"), HasSubstr("--standalone"));
  EXPECT_THAT(line_with(slurm(), "--nnodes=3 --node_rank=0 --master_addr=node9"),
              HasSubstr("--node_rank=0, but this is Slurm step 4097.0: task 2 of 3"));
  for (const char* way_out : {"--nnodes=2 --scheduler=none", "--nnodes=1 --standalone"})
    EXPECT_THAT(line_with(slurm(), way_out), testing::Not(HasSubstr("error"))) << way_out;
}

TEST(EngineOptions, SeveralDtrunsOnANodeAreRefusedUnlessTheUserSaysHow) {
  for (const char* words : {"", "--nproc_per_node=2", "--rdzv_backend=c10d --rdzv_endpoint=h:1"})
    EXPECT_THAT(line_with(slurm_ranks(), words),
                AllOf(HasSubstr("Slurm step 4097.0 has started 2 dtruns on this node"),
                      HasSubstr("srun --ntasks-per-node=1 dtrun --nproc_per_node=2 ./app"),
                      HasSubstr("srun --ntasks-per-node=2 dtrun --adopt ./app")));
  // As many as there are nodes is what a line for one dtrun per node says.
  EXPECT_THAT(line_with(slurm_ranks(), "--nnodes=2 --nproc_per_node=2"),
              AllOf(HasSubstr("has started 2 dtruns on this node"),
                    HasSubstr("srun --ntasks-per-node=1 dtrun --nproc_per_node=2 ./app")));
  EXPECT_THAT(line_with(slurm_ranks(), "--nnodes=8"), HasSubstr("has started 4 dtruns"));
  EXPECT_THAT(line_with(slurm_ranks(), "--nnodes=4"), HasSubstr("node-rank=3"));
  EXPECT_EQ(line_with(slurm_ranks(), "--standalone"), "nproc-per-node=4 standalone=1");
  // Of unequal nodes the one that has a single task must not go on alone.
  EXPECT_THAT(line_with(slurm({{"SLURM_STEP_NUM_TASKS", "5"},
                               {"SLURM_PROCID", "4"},
                               {"SLURM_STEP_TASKS_PER_NODE", "3,1(x2)"}}),
                        ""),
              HasSubstr("has started 5 dtruns on 3 nodes"));
}

TEST(EngineOptions, AnEngineThatTellsNoHeadAsksForOne) {
  Variables mpi = kTold[0].variables;
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  mpi["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_THAT(line_with(mpi, ""),
              AllOf(HasSubstr("does not tell where they can meet"), HasSubstr("-x MASTER_ADDR")));
  // Each with its own line. Of Flux only where its PMI has been turned off.
  const auto without_head = [](Variables variables) {
    variables.erase("MASTER_ADDR");
    return line_with(variables, "--nnodes=4");
  };
  for (const Told& told : kTold) {
    if (std::string_view(told.key) == "pals") {
      EXPECT_THAT(without_head(told.variables), HasSubstr("$(head -n1 $PBS_NODEFILE)"));
    } else if (std::string_view(told.key) == "flux") {
      EXPECT_THAT(without_head(told.variables),
                  AllOf(HasSubstr("-o pmi=off"), HasSubstr("flux run --env=MASTER_ADDR=HOST")));
    }
  }
  EXPECT_THAT(line_with({{"JOB_COMPLETION_INDEX", "1"}}, "--nnodes=2"),
              HasSubstr("HOST the name of node 0"));
}

TEST(EngineOptions, PalsTellsTheHeadInItsFile) {
  const std::string folder = testing::TempDir() + "pals." + std::to_string(::getpid());
  const std::string path = folder + "/apinfo";
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  std::ofstream(path, std::ios::binary) << PalsFile{}.bytes();
  Variables pals = {{"PALS_RANKID", "3"},     {"PMI_SIZE", "4"},     {"PALS_LOCAL_RANKID", "1"},
                    {"PALS_LOCAL_SIZE", "2"}, {"PALS_APID", "7f3a"}, {"PALS_APINFO", path}};
  const std::string expected =
      "adopt=1 nnodes=4 node-rank=3 nproc-per-node=1 rdzv-backend=c10d "
      "rdzv-endpoint=x1000c0s1b0n0:";
  EXPECT_THAT(line_with(pals, "--adopt"), testing::StartsWith(expected));
  CommandLine line = line_of("--adopt");
  // As the variables alone would have it, it were node 1.
  EXPECT_EQ(add_engine_options(with(pals), line).adopted->node, 0);
  pals.erase("PALS_APINFO");
  pals["PALS_SPOOL_DIR"] = folder;
  EXPECT_THAT(line_with(pals, "--adopt"), testing::StartsWith(expected));
  pals["MASTER_ADDR"] = "h1";
  EXPECT_THAT(line_with(pals, "--adopt"), HasSubstr("rdzv-endpoint=h1:"));
  // Else it is said what is missing.
  pals.erase("MASTER_ADDR");
  pals["PALS_APINFO"] = folder + "/none";
  EXPECT_THAT(line_with(pals, "--adopt"),
              AllOf(HasSubstr("/none, which tells it, cannot be opened"),
                    HasSubstr("$(head -n1 $PBS_NODEFILE)")));
  std::ofstream(path, std::ios::binary) << "short";
  pals["PALS_APINFO"] = path;
  EXPECT_THAT(line_with(pals, "--adopt"), HasSubstr("less than its header"));
  std::filesystem::remove_all(folder);
}

TEST(EngineOptions, AMainNodeThatIsNotToldItsAddressHasItsName) {
  EXPECT_EQ(line_with({{"AWS_BATCH_JOB_NODE_INDEX", "0"}, {"AWS_BATCH_JOB_NUM_NODES", "2"}}, ""),
            "nnodes=2 node-rank=0 rdzv-backend=c10d rdzv-endpoint=" + base::host_name());
}

TEST(EngineOptions, AdoptedRanksHaveTheEnginesNumbers) {
  CommandLine line = line_of("--adopt");
  const EngineFindings findings = add_engine_options(with(slurm_ranks()), line);
  ASSERT_TRUE(findings.adopted);
  EXPECT_EQ(findings.adopted->local_rank, 1);
  EXPECT_EQ(findings.adopted->local_world_size, 2);
  EXPECT_EQ(findings.adopted->group_rank, 1);
  EXPECT_EQ(findings.adopted->group_world_size, 2);
  EXPECT_EQ(findings.adopted->node, 1);
  EXPECT_EQ(line_with(slurm_ranks(), "--adopt"),
            "adopt=1 nnodes=4 node-rank=3 nproc-per-node=1 rdzv-backend=c10d "
            "rdzv-endpoint=node9:61441 rdzv-id=4097.0");
  EXPECT_EQ(findings.note,
            "Slurm step 4097.0: task 3 of 4, hence --nproc_per_node=1 --nnodes=4 "
            "--rdzv_backend=c10d --rdzv_endpoint=node9:61441 --rdzv_id=4097.0 --node_rank=3");
}

TEST(EngineOptions, AdoptionWithoutRanksIsRefused) {
  EXPECT_THAT(line_with({}, "--adopt"), HasSubstr("no engine has started this dtrun"));
  EXPECT_THAT(line_with(kTold[11].variables, "--adopt"), HasSubstr("does not number ranks"));
  EXPECT_THAT(line_with(kTold[7].variables, "--adopt"), HasSubstr("does not number ranks"));
  for (const char* words : {"--adopt --nproc_per_node=2", "--adopt --standalone"})
    EXPECT_THAT(line_with(slurm_ranks(), words), HasSubstr("error: ")) << words;
  for (const char* words : {"--adopt --nnodes=1:4", "--adopt --nnodes=2"})
    EXPECT_THAT(line_with(slurm_ranks(), words), HasSubstr("contradict")) << words;
}

TEST(EngineOptions, AnAllocationOfSeveralNodesWithoutSrunIsRefused) {
  const Variables shell = slurm({{"SLURM_STEP_NODELIST", ""}, {"SLURM_STEP_ID", ""}});
  EXPECT_THAT(line_with(shell, ""),
              AllOf(HasSubstr("Slurm job 4097 has 3 nodes, and dtrun was started on this machine"),
                    HasSubstr("srun dtrun ./app")));
  for (const char* words : {"--standalone", "--nnodes=1", "--scheduler=none"})
    EXPECT_THAT(line_with(shell, words), testing::Not(HasSubstr("error"))) << words;
  Variables one = shell;
  one["SLURM_JOB_NUM_NODES"] = "1";
  EXPECT_EQ(line_with(one, ""), "");
  Variables rank = shell;
  rank["TORCHELASTIC_RUN_ID"] = "4097.0";
  EXPECT_EQ(line_with(rank, ""), "");
}

}  // namespace
}  // namespace dtrun::launcher
