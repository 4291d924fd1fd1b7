// --dry-run: the plan as it would be carried out; and, by the plan, that the defaults which the
// option table names are the ones in force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <sstream>

#include "dtrun/base/json.h"
#include "launcher/launcher_job.h"
#include "launcher/plan_here.h"
#include "options/option_names.h"
#include "options/usage_text.h"
#include "preview/plan_description.h"
#include "preview/plan_table.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::error_of;

base::Environment ordinary() {
  base::Environment environment;
  environment.set("PATH", "/usr/bin:/bin");
  environment.set("RANK", "9");
  environment.set("CUDA_VISIBLE_DEVICES", "4,5");
  return environment;
}

boost::json::object described(std::vector<std::string> words) {
  words.insert(words.end(), {"echo", "a b", "${local_rank}"});
  const base::Environment environment = ordinary();
  return describe_plan(plan_here(words, environment), environment, "node1");
}

const boost::json::object& rank(const boost::json::object& plan, std::size_t local_rank) {
  return plan.at("ranks").at(local_rank).as_object();
}

std::string variable(const boost::json::object& plan, std::size_t local_rank, const char* name) {
  return rank(plan, local_rank).at("environment").at(name).as_string().c_str();
}

TEST(DryRun, OfOneNodeKnowsTheRanksTheirProgramAndTheirEnvironment) {
  const auto plan = described({"--nproc_per_node=2", "--role=trainer"});
  EXPECT_TRUE(plan.at("run_id").is_null());
  EXPECT_EQ(plan.at("world_size").as_int64(), 2);
  EXPECT_THAT(plan.at("program").as_string().c_str(), testing::EndsWith("/echo"));
  EXPECT_EQ(boost::json::serialize(rank(plan, 1).at("arguments")), R"(["echo","a b","1"])");
  EXPECT_EQ(rank(plan, 1).at("rank").as_int64(), 1);
  EXPECT_EQ(rank(plan, 1).at("host"), "node1");
  EXPECT_EQ(rank(plan, 1).at("omp_num_threads"), "1");
  EXPECT_EQ(variable(plan, 1, "RANK"), "1");
  EXPECT_EQ(variable(plan, 1, "ROLE_NAME"), "trainer");
  EXPECT_EQ(variable(plan, 1, "MASTER_PORT"), "<a free one>");
  EXPECT_THAT(plan.at("environment_removed").as_array(), testing::Contains("RANK"));
  EXPECT_EQ(plan.at("timeouts").at("shutdown").as_double(), 30);
}

TEST(DryRun, OfSeveralNodesSaysWhatIsGivenOutLater) {
  const auto plan = described({"--nproc_per_node=2", "--nnodes=2", "--rdzv_backend=c10d",
                               "--rdzv_endpoint=node7", "--rdzv_id=job7"});
  EXPECT_EQ(plan.at("run_id"), "job7");
  EXPECT_EQ(plan.at("rendezvous").at("port").as_int64(), 29400);
  EXPECT_EQ(plan.at("rendezvous").at("host"), "the dtrun on the machine that 'node7' names");
  EXPECT_TRUE(rank(plan, 0).at("rank").is_null());
  EXPECT_EQ(variable(plan, 0, "RANK"), "<given out by the rendezvous>");
  EXPECT_EQ(variable(plan, 0, "WORLD_SIZE"), "4");
  EXPECT_THAT(plan_table(plan), AllOf(HasSubstr("given out  0      node1"),
                                      HasSubstr("4 in all, if every node has as many")));
  EXPECT_TRUE(plan.at("world_size_is_assumed").as_bool());
  const auto elastic = described({"--nnodes=1:4", "--rdzv_backend=c10d", "--rdzv_endpoint=node7"});
  EXPECT_TRUE(elastic.at("world_size").is_null());
  EXPECT_EQ(variable(elastic, 0, "WORLD_SIZE"), "<given out by the rendezvous>");
  const auto second = described({"--nproc_per_node=2", "--nnodes=2", "--node_rank=1",
                                 "--master_addr=node7", "--master_port=7"});
  EXPECT_EQ(rank(second, 1).at("rank").as_int64(), 3);
  EXPECT_EQ(variable(second, 1, "MASTER_PORT"), "7");
  EXPECT_EQ(second.at("rendezvous").at("host"), "node 0");
}

TEST(DryRun, SaysWhoWouldHost) {
  const auto host = [](std::vector<std::string> words) {
    words.emplace_back("--nnodes=2");
    return std::string(described(words).at("rendezvous").at("host").as_string().c_str());
  };
  const std::string c10d = "--rdzv_backend=c10d";
  EXPECT_THAT(host({"--master_addr=node7"}), HasSubstr("this dtrun: it is node 0"));
  EXPECT_THAT(host({c10d, "--rdzv_endpoint=node1"}), HasSubstr("'node1' is this machine"));
  EXPECT_THAT(host({c10d, "--rdzv_endpoint=h", "--rdzv_conf=is_host=1"}), HasSubstr("this dtrun"));
  EXPECT_THAT(host({c10d, "--rdzv_endpoint=h", "--rdzv_conf=is_host=0"}), HasSubstr("another"));
  EXPECT_THAT(host({c10d, "--rdzv_endpoint=/x/y", "--rdzv_conf=store_type=file"}),
              HasSubstr("the first to come to /x/y"));
  EXPECT_THAT(host({"--rdzv_backend=etcd-v2", "--rdzv_endpoint=h"}), HasSubstr("etcd elects"));
}

TEST(DryRun, ShowsBindingsDevicesAndLogs) {
  const auto plan = described({"--nproc_per_node=2", "--numa-binding=node", "--omp-threads=share",
                               "--virtual_local_rank", "--log_dir=/logs", "--rdzv_id=job7"});
  EXPECT_THAT(rank(plan, 0).at("cpus").as_array(), Not(IsEmpty()));
  EXPECT_EQ(variable(plan, 1, "CUDA_VISIBLE_DEVICES"), "5");
  EXPECT_EQ(variable(plan, 1, "LOCAL_RANK"), "0");
  EXPECT_THAT(variable(plan, 1, "TORCHELASTIC_ERROR_FILE"),
              testing::MatchesRegex("/logs/job7_<random>/attempt_0/1/error.json"));
  EXPECT_NE(variable(plan, 1, "OMP_NUM_THREADS"), "");
  const auto by_loopback = described({"--iface=lo"});
  const auto& common = by_loopback.at("environment");
  EXPECT_EQ(common.at("DTRUN_SOCKET_IFNAME"), "lo");
  EXPECT_EQ(common.at("GLOO_SOCKET_IFNAME"), "lo");
  EXPECT_EQ(common.at("NCCL_SOCKET_IFNAME"), "=lo");
  const auto teed = described({"--nproc_per_node=2", "-t", "0:1,1:3", "-r1:2", "--log_dir=/logs"});
  EXPECT_EQ(rank(teed, 0).at("stdout").at("file"), "/logs/none_<random>/attempt_0/0/stdout.log");
  const auto apart = described({"-r3"});
  EXPECT_THAT(variable(apart, 0, "TORCHELASTIC_ERROR_FILE"),
              testing::EndsWith("/dtrun_<random>/none_<random>/attempt_0/0/error.json"));
  EXPECT_TRUE(rank(teed, 0).at("stdout").at("console").as_bool());
  EXPECT_TRUE(rank(teed, 0).at("stderr").at("file").is_null());
  const auto none = described({"--log_dir=/dev/null"});
  EXPECT_TRUE(rank(none, 0).at("error_file").is_null());
}

TEST(DryRun, TellsRestartsAndContainment) {
  const auto none = described({});
  EXPECT_FALSE(none.at("world_size_is_assumed").as_bool());
  EXPECT_THAT(plan_table(none),
              AllOf(HasSubstr("restarts     none\n"), HasSubstr("containment  auto\n")));
  const auto plan = described({"--max_restarts=3", "--restart_backoff=5", "--restart_scope=agent",
                               "--give_up_on=alike:2,code:7", "--containment=guard"});
  EXPECT_EQ(plan.at("restarts").at("most").as_int64(), 3);
  EXPECT_EQ(plan.at("restarts").at("give_up_on_codes").at(0).as_int64(), 7);
  for (const char* wish : {"auto", "cgroup", "namespace", "guard"})
    EXPECT_EQ(described({std::string("--containment=") + wish}).at("containment"), wish);
  EXPECT_THAT(
      plan_table(plan),
      HasSubstr("3 of each agent, after 5 s and then up to 300 s; none after two failures alike "
                "within 2 s, after exit code 7\n"));
}

TEST(DryRun, IsATableThatNamesEachVariableOnce) {
  const std::string table = plan_table(described({"--nproc_per_node=12"}));
  EXPECT_THAT(table, AllOf(HasSubstr("  RANK=0 | 1 | ... | 11\n"), HasSubstr("  WORLD_SIZE=12\n"),
                           HasSubstr("echo 'a b' 11\n"), HasSubstr("RANK is removed\n")));
}

TEST(DryRun, ByTheProgramItselfStartsNothing) {
  LauncherJob job;
  for (const char* form : {"--dry-run", "--dry-run=json"}) {
    const auto result =
        job.run({form, "--nproc_per_node=2", "--nnodes=2", "--rdzv_backend=c10d",
                 "--rdzv_endpoint=no.such.host.invalid", "touch", job.folder() + "/started"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, HasSubstr("no.such.host.invalid"));
    if (std::string(form) == "--dry-run=json") base::parse_json(result.out, "the plan");
  }
  EXPECT_THAT(job.left_behind(), IsEmpty());
  EXPECT_EQ(job.run({"--dry-run=xml", "true"}).exit_code, 64);
}

TEST(DryRun, IsJsonWhateverBytesThereAre) {
  LauncherJob job;
  const auto result =
      job.run({"--dry-run=json", "--role=a\xff\xc3", "echo", "\xe2\x82\xac\xe2\x82"});
  const auto plan = base::parse_json(result.out, "the plan");
  EXPECT_EQ(plan.at("role"), "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(plan.at("ranks").at(0).at("arguments").at(1), "\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(DryRun, ThatCannotBeWrittenIsNoSuccess) {
  for (const char* form : {"--dry-run=json", "--help"}) {
    // For reading only.
    const auto result = testing_support::run_command(
        {"sh", "-c", "exec \"$0\" \"$1\" true 1</proc/self/cmdline", DTRUN_BINARY, form});
    EXPECT_EQ(result.exit_code, 71) << result.describe();
    EXPECT_THAT(result.err, HasSubstr("cannot write to the standard output"));
  }
}

TEST(DryRun, TellsTheRanksWhichSignalsStop) {
  const auto plan = described({"--signals-to-handle=SIGTERM,SIGUSR1"});
  EXPECT_EQ(plan.at("environment").at("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGUSR1");
}

TEST(OptionTableTest, TheDefaultsItNamesAreInForce) {
  const auto as_it_is = described({});
  for (const OptionRow& row : option_table()) {
    if (row.otherwise == nullptr) continue;
    EXPECT_EQ(described({spelling_of(row) + "=" + row.otherwise}), as_it_is) << row.name;
  }
}

TEST(OptionTableTest, TheExamplesAreLinesThatWork) {
  for (const UsageExample& example : usage_examples()) {
    std::istringstream stream{std::string(example.command)};
    std::vector<std::string> words;
    bool after_name = false;
    for (std::string word; stream >> word; after_name = after_name || word == "dtrun")
      if (after_name) words.push_back(word);
    const auto error = error_of([&] { parse_options("dtrun", words, {}); });
    EXPECT_FALSE(error) << example.command << "\n" << error->what();
  }
}

}  // namespace
}  // namespace dtrun::launcher
