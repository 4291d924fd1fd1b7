// examples/slurm on a real cluster of four nodes: batch jobs, requeues, signals that Slurm sends, a
// node that goes. docs/engines.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>

#include "support/slurm_lab.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;
using testing_support::SlurmLab;

class SlurmBatchTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab_ = std::make_unique<SlurmLab>(4, std::vector<std::string>{"--preempt"});
    lab_->options().environment["PATH"] = DTRUN_BIN ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
  }
  // Where Slurm kills a dtrun with all that belongs to it, the next dtrun removes its folder.
  static void TearDownTestSuite() {
    const bool ran = lab_->reason().empty();
    lab_.reset();
    if (ran) {
      EXPECT_EQ(testing_support::run_command({DTRUN_BIN "/dtrun", "true"}).exit_code, 0);
    }
  }
  void SetUp() override { REQUIRE_SLURM(*lab_); }

  struct Job {
    int exit_code = 0;
    std::string output;
  };

  static std::string example(const std::string& name) {
    return DTRUN_SOURCE_DIR "/examples/slurm/" + name;
  }
  static std::string output_of(const std::string& name) {
    std::ifstream in(lab_->folder() + "/" + name + ".out");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::vector<std::string> batch_line(const std::string& name,
                                             std::vector<std::string> options,
                                             std::vector<std::string> program) {
    std::vector<std::string> words = {"sbatch", "--output=" + lab_->folder() + "/" + name + ".out"};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(example(name + ".sbatch"));
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
  static Job run_batch(const std::string& name, std::vector<std::string> options,
                       std::vector<std::string> program) {
    options.emplace_back("--wait");
    const CommandResult result = lab_->run(batch_line(name, options, program));
    return {result.exit_code, output_of(name) + result.describe()};
  }

  /// What is in the file, and what is added to it; it need not be there yet.
  static std::unique_ptr<testing_support::Command> follow(const std::string& file) {
    return lab_->start({"tail", "-n", "+1", "-s", "0.02", "--retry", "--follow=name", file});
  }
  /// A job that has others on node1 and node2 put back into the queue.
  static CommandResult run_urgent_job() {
    return lab_->run(
        {"srun", "--partition=high", "--exclusive", "--nodelist=node1,node2", "hostname"});
  }

  static std::unique_ptr<SlurmLab> lab_;
};

std::unique_ptr<SlurmLab> SlurmBatchTest::lab_;

TEST_F(SlurmBatchTest, TheScriptsForOneAndForSeveralNodesRun) {
  const Job one = run_batch("single", {}, {DTRUN_BIN "/hello"});
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_THAT(one.output, HasSubstr("hello from rank 1 (local rank 1) of 2"));
  const Job four = run_batch("multi", {"--nodes=4"}, {DTRUN_BIN "/hello"});
  EXPECT_EQ(four.exit_code, 0) << four.output;
  EXPECT_THAT(four.output, AllOf(HasSubstr("hello from rank 7 (local rank 1) of 8"),
                                 HasSubstr("task 0 of 4, hence --nnodes=4")));
  const Job failed = run_batch("multi", {}, {"sh", "-c", "test $RANK != 2 || exit 9; sleep 60"});
  EXPECT_EQ(failed.exit_code, 9) << failed.output;
}

TEST_F(SlurmBatchTest, AJobThatEndsWith75IsPutBackIntoTheQueue) {
  const Job job =
      run_batch("requeue", {},
                {"sh", "-c",
                 "echo life ${SLURM_RESTART_COUNT:-0} rank $RANK run $TORCHELASTIC_RUN_ID; "
                 "test ${SLURM_RESTART_COUNT:-0} = 1 || { test $RANK = 3 && exit 75; sleep 60; }"});
  EXPECT_EQ(job.exit_code, 0) << job.output;
  // Of the first life only the rank that ends it is sure to have come so far.
  EXPECT_THAT(job.output, AllOf(HasSubstr("life 0 rank 3"), HasSubstr("requeue 1 of 10"),
                                HasSubstr("life 1 rank 3"), HasSubstr(".0.1\n")));
}

TEST_F(SlurmBatchTest, APreemptedJobSavesAndComesBack) {
  const std::string file = lab_->folder() + "/preempted.out";
  const auto job =
      lab_->start(batch_line("requeue", {"--wait", "--output=" + file, "--nodelist=node1,node2"},
                             {"--on-signal=TERM=drain:10", "python3", "-c",
                              "import os, signal\n"
                              "life = os.environ.get('SLURM_RESTART_COUNT', '0')\n"
                              "def save(*_):\n"
                              "  print('saved', os.environ['RANK'], flush=True)\n"
                              "  os._exit(75)\n"
                              "signal.signal(signal.SIGTERM, save)\n"
                              "print('life', life, os.environ['RANK'], flush=True)\n"
                              "while life == '0': signal.pause()"}));
  const auto output = follow(file);
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(output->next_line("life 0"));
  const CommandResult urgent = run_urgent_job();
  EXPECT_THAT(urgent.sorted_lines(), ElementsAre("node1", "node2")) << urgent.describe();
  EXPECT_EQ(job->finish().exit_code, 0);
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_THAT(text, AllOf(HasSubstr(std::string("saved ") + rank),
                            HasSubstr(std::string("life 1 ") + rank)));
  // Where a rank has saved and ended before Slurm came to its dtrun, that one is named as a failure
  // (docs/engines.md); the job's code is the same.
  EXPECT_THAT(text, HasSubstr("exit code 75, requeue 1 of 10"));
}

TEST_F(SlurmBatchTest, APreemptedTrainingComesBackAndEndsWithTheSameBits) {
  const auto training = [](const std::string& folder) {
    std::vector<std::string> words = {"--on-signal=TERM=drain:60", DTRUN_BIN "/train_gpt"};
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"--steps", "400"},
                                            {"--every", "5"},
                                            {"--batch", "12"},
                                            {"--context", "32"},
                                            {"--width", "32"},
                                            {"--sample", "0"},
                                            {"--dropout", "0.1"},
                                            {"--checkpoint-every", "1000"},
                                            {"--checkpoint", folder}})
      words.insert(words.end(), {name, value});
    return words;
  };
  const std::string calm = lab_->folder() + "/calm", preempted = lab_->folder() + "/preempted";
  const std::vector<std::string> nodes = {"--nodelist=node1,node2"};
  const Job undisturbed = run_batch("requeue", nodes, training(calm));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
  const std::string file = lab_->folder() + "/training.out";
  // Not --wait: sbatch looks after 2 s, then 4 s, then 8 s, ...
  const CommandResult job = lab_->run(
      batch_line("requeue", {"--parsable", "--output=" + file, nodes[0]}, training(preempted)));
  ASSERT_EQ(job.exit_code, 0) << job.describe();
  const auto output = follow(file);
  ASSERT_TRUE(output->next_line("step    5 "));
  // The training stands still until Slurm's SIGCONT and SIGTERM come: it can't end before them.
  for (const int node : {1, 2}) {
    const CommandResult stopped = lab_->run_on(node, {"pkill", "-STOP", "-x", "train_gpt"});
    ASSERT_EQ(stopped.exit_code, 0) << stopped.describe();
  }
  const CommandResult urgent = run_urgent_job();
  EXPECT_EQ(urgent.exit_code, 0) << urgent.describe();
  ASSERT_TRUE(output->next_line("loss: "));
  const std::string ended_well = "--dependency=afterok:" + job.out.substr(0, job.out.find('\n'));
  EXPECT_EQ(lab_->run({"srun", ended_well, "true"}).exit_code, 0);
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(text, AllOf(HasSubstr("was asked to end, and has saved step "),
                          HasSubstr("goes on after step "), HasSubstr("took its next step ")));
  // The checksums of all elements.
  const auto elements_of = [](const std::string& folder) {
    std::ifstream manifest(folder + "/step-400/manifest.json");
    const std::string all((std::istreambuf_iterator<char>(manifest)), {});
    const std::size_t begin = all.find("\"tensors\":["), end = all.rfind(",\n\"checksum\"");
    return begin < end ? all.substr(begin, end - begin) : "";
  };
  EXPECT_NE(elements_of(calm), "");
  EXPECT_EQ(elements_of(preempted), elements_of(calm));
}

TEST_F(SlurmBatchTest, SignalsOfSlurmReachTheRanksAndTheirCodeComesBack) {
  // Slurm signals all processes of a step: the guard must not die of it.
  for (const char* name : {"USR1", "TERM"}) {
    const auto job = lab_->start({"srun", "-N4", "--ntasks-per-node=1", "-K0",
                                  std::string("--job-name=get_") + name, DTRUN_BIN "/dtrun",
                                  "--on-signal=TERM=drain:30", "python3", "-c",
                                  std::string("import os, signal\n"
                                              "signal.signal(signal.SIG") +
                                      name +
                                      ", lambda *_: os._exit(75))\n"
                                      "print('ready', flush=True)\n"
                                      "while True: signal.pause()"});
    for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(job->next_line("ready"));
    const std::string signal = std::string("--signal=") + name;
    EXPECT_EQ(lab_->run({"scancel", signal, std::string("--name=get_") + name}).exit_code, 0);
    const CommandResult result = job->finish();
    EXPECT_EQ(result.exit_code, 75) << name << result.describe();
    EXPECT_THAT(result.err, Not(HasSubstr("guard"))) << name;
  }
}

// Where Slurm signals the ranks, too, dtrun does not; what is sent to dtrun alone it passes on.
TEST_F(SlurmBatchTest, ASignalReachesTheRanksOnce) {
  const auto job = lab_->start({"srun", "-N1", "--job-name=once", DTRUN_BIN "/dtrun",
                                "--nproc_per_node=2", "--tag=never", "python3", "-c",
                                "import os, signal\n"
                                "got = []\n"
                                "def took(*_):\n"
                                "  got.append(1)\n"
                                "  print('took', len(got), flush=True)\n"
                                "def tell(*_):\n"
                                "  print('in all', len(got), flush=True)\n"
                                "  os._exit(0)\n"
                                "signal.signal(signal.SIGUSR1, took)\n"
                                "signal.signal(signal.SIGUSR2, tell)\n"
                                "print('ready', flush=True)\n"
                                "while True: signal.pause()"});
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(job->next_line("ready"));
  const auto send_to_dtrun = [](const std::string& name) {
    return lab_->run_on(1, {"pkill", "-" + name, "-x", "dtrun"}).exit_code;
  };
  constexpr int kSignals = 6;
  for (int i = 0; i < kSignals; ++i) {
    // Slurm, and somebody who means dtrun, in turn.
    EXPECT_EQ(i % 2 == 0 ? lab_->run({"scancel", "--signal=USR1", "--name=once"}).exit_code
                         : send_to_dtrun("USR1"),
              0);
    for (int rank = 0; rank < 2; ++rank)
      ASSERT_TRUE(job->next_line("took " + std::to_string(i + 1)));
  }
  // It comes after all that dtrun has had to pass on.
  EXPECT_EQ(send_to_dtrun("USR2"), 0);
  const CommandResult result = job->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("in all 6\nin all 6\n"));
}

TEST_F(SlurmBatchTest, AVerdictIsNotChangedBySlurmsEndOfTheOtherTasks) {
  // Node 0's rank takes a second to end; by then srun -K has sent SIGTERM for the other's end.
  const std::string ready = lab_->folder() + "/ready.fifo";
  ASSERT_EQ(::mkfifo(ready.c_str(), 0600), 0);
  const CommandResult result =
      lab_->run({"srun", "-N2", "--ntasks-per-node=1", "-K1", DTRUN_BIN "/dtrun", "python3", "-c",
                 "import os, signal, sys, time\n"
                 "ready = '" +
                     ready +
                     "'\n"
                     "def slowly(*_):\n"
                     "  time.sleep(1)\n"
                     "  sys.exit(3)\n"
                     "if os.environ['RANK'] == '0':\n"
                     "  signal.signal(signal.SIGTERM, slowly)\n"
                     "  open(ready, 'w').close()\n"
                     "  while True: signal.pause()\n"
                     "open(ready).read()\n"
                     "sys.exit(75)"});
  EXPECT_EQ(result.exit_code, 75) << result.describe();
}

TEST_F(SlurmBatchTest, AnElasticJobGoesOnWithoutTheNodeThatSlurmTakesAway) {
  // How long the survivors wait for others; 30 s by default.
  lab_->options().environment["PET_RDZV_CONF"] = "last_call_timeout=1";
  const CommandResult queued =
      lab_->run(batch_line("elastic", {"--nodes=2", "--nodelist=node1,node2"},
                           {"sh", "-c",
                            "echo up $RANK of $WORLD_SIZE on $(hostname); "
                            "test $WORLD_SIZE = 2 && exit 0; exec sleep 60"}));
  lab_->options().environment.erase("PET_RDZV_CONF");
  ASSERT_EQ(queued.exit_code, 0) << queued.describe();
  const auto output = follow(lab_->folder() + "/elastic.out");
  ASSERT_TRUE(output->wait_for_output("up 3 of 4"));
  // node1 hosts; without it the job ends.
  EXPECT_EQ(
      lab_->run({"scontrol", "update", "nodename=node2", "state=down", "reason=test"}).exit_code,
      0);
  EXPECT_TRUE(output->wait_for_output("up 1 of 2")) << output_of("elastic");
  lab_->run({"scontrol", "update", "nodename=node2", "state=resume"});
}

}  // namespace
}  // namespace dtrun
