// torchrun's options that concern Python, its devices, its events and its name, as dtrun takes
// them.
#include "options/python_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value.hpp>

#include "cpus/virtual_devices.h"
#include "dtrun/base/json.h"
#include "options/options.h"
#include "sources/option_sources.h"
#include "support/thrown_error.h"
#include "verdict/event_log.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::error_of;

Options parsed(std::vector<std::string> words, const base::Environment& environment = {}) {
  words.emplace_back("train.py");
  return parse_options("dtrun", words, environment);
}

TEST(PythonOptions, SayInOneLineWhatTheyMeanHere) {
  const std::pair<const char*, const char*> said[] = {
      {"--start_method=fork", "--start_method is without effect: every rank is a program"},
      {"--logs-specs=mine", "--logs-specs is without effect: it names a plugin"},
      {"--monitor_interval=1", "--monitor_interval is without effect: dtrun does not poll"},
      {"--event_log_handler=mine", "'mine' is a handler of Python's"},
  };
  for (const auto& [word, text] : said)
    EXPECT_THAT(parsed({word}).warnings, ElementsAre(HasSubstr(text))) << word;
  EXPECT_THAT(parsed({"--run_path", "-m"}).warnings,
              ElementsAre(HasSubstr("-m is without effect")));
  EXPECT_THAT(parsed({"--event_log_handler=null"}).warnings, IsEmpty());
  EXPECT_EQ(parsed({"--event_log_handler=console"}).event_log, EventLog::kConsole);
  EXPECT_TRUE(error_of([] { parsed({"--start_method=thread"}); }));
  EXPECT_TRUE(error_of([] { parsed({"--monitor_interval=often"}); }));
}

TEST(PythonOptions, FromTheEnvironmentAreToldOnlyOnRequest) {
  base::Environment environment;
  environment.set("PET_MONITOR_INTERVAL", "5");
  const Options options = parsed({}, environment);
  EXPECT_THAT(options.warnings, IsEmpty());
  EXPECT_THAT(options.notes, ElementsAre(HasSubstr("PET_MONITOR_INTERVAL is without effect")));
}

// From torchrun's documentation, PyTorch's tutorials, and its tests.
TEST(TorchrunsLines, AreTakenAsTheyStand) {
  const std::vector<std::string> lines[] = {
      {"--standalone", "--nnodes=1", "--nproc-per-node=4"},
      {"--nnodes=3", "--nproc-per-node=4", "--max-restarts=3", "--rdzv-id=100",
       "--rdzv-backend=c10d", "--rdzv-endpoint=host1:29400"},
      {"--nnodes=1:4", "--nproc_per_node=auto", "--max_restarts=3", "--rdzv_id", "j",
       "--rdzv_backend", "c10d", "--rdzv_endpoint", "host1"},
      {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1", "--nproc-per-node=2"},
      {"--nproc-per-node=2", "--nnodes=2", "--node-rank=0", "--master-addr=192.168.1.1",
       "--master-port=1234"},
      {"--nnodes=1", "--nproc-per-node=2", "--rdzv-backend=static",
       "--rdzv-endpoint=localhost:29501", "--rdzv-id=r", "--monitor-interval=1",
       "--start-method=spawn"},
      {"--nnodes=1:2", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=localhost:2379",
       "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'"},
      {"--nproc-per-node=2", "--role=trainer", "--log-dir=/tmp/logs", "-r", "3", "-t", "0:1,1:2",
       "--local-ranks-filter=0"},
      {"--nproc_per_node=2", "--redirect=3", "--tee", "3", "--log_dir", "/tmp/logs"},
      {"--nproc-per-node=2", "--numa-binding=node", "--local-addr=127.0.0.1",
       "--shutdown-timeout=120"},
      {"--signals-to-handle=SIGTERM,SIGUSR1", "--event-log-handler=console", "--run-path"},
      {"--no-python", "--nproc-per-node=2"},
      {"--nproc-per-node=2", "-m"},
  };
  for (const auto& line : lines) {
    const auto error = error_of([&] { parsed(line); });
    EXPECT_FALSE(error) << line.back() << "\n" << error->what();
    base::Environment variables;  // the same, as Kubeflow's PET_*
    variables.set("PET_RDZV_ID", "job7");
    EXPECT_FALSE(error_of([&] { parsed(line, variables); })) << line.back();
  }
}

TEST(Standalone, GoesBeforeAllThatSaysWhereToMeet) {
  const Options options =
      parsed({"--standalone", "--nnodes=1", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0",
              "--rdzv_id=job7", "--node_rank=3"});
  EXPECT_EQ(options.rendezvous, Rendezvous::kStatic);
  EXPECT_EQ(options.master_addr, "127.0.0.1");
  EXPECT_FALSE(options.master_port);
  EXPECT_EQ(options.run_id, "job7");
  EXPECT_THAT(options.warnings,
              ElementsAre(HasSubstr("--rdzv_backend is without effect: --standalone"),
                          HasSubstr("--rdzv_endpoint"), HasSubstr("--node_rank")));
  EXPECT_TRUE(error_of([] { parsed({"--standalone", "--nnodes=2"}); }));
}

TEST(CalledAsTest, TheNameIsTheLastPartOfThePath) {
  EXPECT_EQ(called_as("torchrun"), CalledAs::kTorchrun);
  EXPECT_EQ(called_as("/opt/bin/torchrun"), CalledAs::kTorchrun);
  EXPECT_EQ(called_as("./torch.distributed.launch"), CalledAs::kTorchDistributedLaunch);
  for (const char* name : {"dtrun", "/x/torchrun/dtrun", "torchrun2", "", "torchrun/"})
    EXPECT_EQ(called_as(name), CalledAs::kDtrun) << name;
  EXPECT_EQ(parse_options("torchrun", {"x"}, {}).called_as, CalledAs::kTorchrun);
}

TEST(VirtualDevices, AreTheEntriesOfTheListThatIsInForce) {
  EXPECT_THAT(virtual_devices(3, std::nullopt), ElementsAre("0", "1", "2"));
  EXPECT_THAT(virtual_devices(2, "4,5, GPU-ab"), ElementsAre("4", "5"));
  EXPECT_THAT(virtual_devices(3, "4,5, GPU-ab"), ElementsAre("4", "5", "GPU-ab"));
  for (const char* list : {"", "4", "4,5"}) {
    const auto error = error_of([&] { virtual_devices(3, list); });
    ASSERT_TRUE(error) << list;
    EXPECT_THAT(error->what(), AllOf(HasSubstr("3 ranks"), HasSubstr(list)));
  }
}

TEST(EventLogTest, EveryRankIsARecordOfTorchruns) {
  LaunchPlan plan;
  plan.run_id = "job7";
  plan.programs = {{.name = "train.py", .command = {}}};
  JobOutcome outcome;
  outcome.base_rank = 4;
  outcome.group_rank = 1;
  for (int i = 0; i < 3; ++i)
    outcome.ranks.push_back({.end = {.local_rank = i, .pid = 10 + i},
                             .error_tail = "",
                             .error_file = "",
                             .report = std::nullopt});
  outcome.ranks[1].end.code = 3;
  outcome.ranks[2].end.signal = 15;
  outcome.ranks[2].end.stopped = 1;
  const auto lines = worker_events(plan, outcome, "node1",
                                   std::chrono::system_clock::time_point(std::chrono::seconds(5)));
  ASSERT_EQ(lines.size(), 3u);
  const char* const states[] = {"SUCCEEDED", "FAILED", "TERMINATED"};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto record = base::parse_json(lines[i], "the record");
    EXPECT_EQ(record.at("name").as_string(),
              std::string("torchelastic.worker.status.") + states[i]);
    EXPECT_EQ(record.at("source"), "WORKER");
    EXPECT_EQ(record.at("timestamp").as_int64(), 5000);
    EXPECT_EQ(record.at("metadata").at("global_rank").as_int64(), 4 + static_cast<int>(i));
    EXPECT_EQ(record.at("metadata").at("run_id"), "job7");
    EXPECT_EQ(record.at("metadata").at("hostname"), "node1");
    EXPECT_EQ(record.at("metadata").at("raw_error").is_null(), i != 1);
  }
}

}  // namespace
}  // namespace dtrun::launcher
