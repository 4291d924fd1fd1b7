// MPICH's mpiexec as dtrun's engine: the words of PMI-1, and jobs of the real one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <thread>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "engines/engine.h"
#include "engines/pmi_client.h"
#include "launcher_job.h"
#include "sources/engine_options.h"
#include "sources/option_sources.h"
#include "sources/pmi_meeting.h"
#include "support/command.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;

const std::string kBegun =
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=my_kvsname kvsname=kvs_7\n";
const std::string kMet =
    "cmd=barrier_out\ncmd=get_result rc=0 msg=success value=node7:61500\ncmd=finalize_ack\n";

// An mpiexec that has said all that it will say.
class Mpiexec {
 public:
  explicit Mpiexec(const std::string& answers) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own_ = base::UniqueFd(ends[0]);
    client_ = ends[1];
    EXPECT_EQ(::send(own_.get(), answers.data(), answers.size(), 0),
              static_cast<ssize_t>(answers.size()));
    ::shutdown(own_.get(), SHUT_WR);
  }
  Engine engine(int task) const {
    Engine result;
    result.task = task;
    result.tasks = 2;
    result.nodes = 1;
    result.pmi_fd = client_;
    result.name = "MPICH";
    result.head_by_hand = "mpiexec -genv MASTER_ADDR HOST";
    return result;
  }
  std::string asked() const {
    char text[4096];
    const ssize_t n = ::recv(own_.get(), text, sizeof text, MSG_DONTWAIT);
    return n <= 0 ? "" : std::string(text, static_cast<std::size_t>(n));
  }

 private:
  base::UniqueFd own_;
  int client_ = -1;
};

base::Deadline soon() {
  return base::Deadline::after(std::chrono::seconds(20));
}

std::string error_with(const std::string& answers) {
  const Mpiexec mpiexec(answers);
  Engine engine = mpiexec.engine(1);
  try {
    meet_by_pmi(engine, "", soon());
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kConnection);
    EXPECT_THAT(error.what(), HasSubstr("-genv MASTER_ADDR HOST"));
    return error.what();
  }
  return "no error";
}

TEST(PmiField, IsAWordOfItsOwn) {
  EXPECT_EQ(pmi_field("cmd=get_result rc=0 value=a=b", "value"), "a=b");
  EXPECT_EQ(pmi_field("cmd=maxes kvsname_max=256", "kvsname"), "");
  EXPECT_EQ(pmi_field("value", "value"), "");
  EXPECT_EQ(pmi_field("", "value"), "");
}

TEST(PmiMeeting, TheOthersAreToldWhatTaskZeroSays) {
  const Mpiexec mpiexec(kBegun + kMet);
  Engine engine = mpiexec.engine(1);
  meet_by_pmi(engine, "", soon());
  EXPECT_EQ(engine.head_host, "node7");
  EXPECT_EQ(engine.port, 61500);
  EXPECT_EQ(engine.run_id, "kvs_7");
  EXPECT_EQ(mpiexec.asked(),
            "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_my_kvsname\ncmd=barrier_in\n"
            "cmd=get kvsname=kvs_7 key=dtrun-head\ncmd=finalize\n");
}

TEST(PmiMeeting, TaskZeroNamesItselfAndAFreePort) {
  const Mpiexec mpiexec(kBegun + "cmd=put_result rc=0\n" + kMet);
  Engine engine = mpiexec.engine(0);
  meet_by_pmi(engine, "", soon());
  EXPECT_THAT(mpiexec.asked(), HasSubstr("cmd=put kvsname=kvs_7 key=dtrun-head value=127.0.0.1:6"));
}

// Flux answers in other words than Hydra.
TEST(PmiMeeting, FluxIsAskedTheSame) {
  const Mpiexec flux(
      "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"
      "cmd=my_kvsname rc=0 kvsname=f2Qx\ncmd=put_result rc=0\ncmd=barrier_out rc=0\n"
      "cmd=get_result rc=0 value=node7:61500\ncmd=finalize_ack rc=0\n");
  Engine engine = flux.engine(0);
  meet_by_pmi(engine, "", soon());
  EXPECT_EQ(engine.head_host, "node7");
  EXPECT_EQ(engine.run_id, "f2Qx");
}

TEST(PmiMeeting, AnMpiexecThatDoesNotAnswerIsAnError) {
  EXPECT_THAT(error_with(""), HasSubstr("it has closed the connection"));
  EXPECT_THAT(error_with("cmd=response_to_init rc=-1\n"), HasSubstr("it says"));
  EXPECT_THAT(error_with(kBegun + "cmd=get_result rc=0\n"), HasSubstr("answer 'cmd=barrier_in'"));
  EXPECT_THAT(error_with(kBegun + "cmd=barrier_out\ncmd=get_result rc=-1 value=unknown\n"),
              HasSubstr("key=dtrun-head"));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const base::UniqueFd silent(ends[0]);
  Engine engine;
  engine.pmi_fd = ends[1];
  try {
    meet_by_pmi(engine, "", base::Deadline::after({}));
    ADD_FAILURE() << "no error";
  } catch (const base::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("not all tasks that it has started ask it"));
  }
}

TEST(PmiMeeting, ADescriptorThatIsNoConnectionIsLeftAlone) {
  for (const int fd : {0, 997}) {
    Engine engine;
    engine.head_host = "node1";
    engine.pmi_fd = fd;
    meet_by_pmi(engine, "", soon());
    EXPECT_EQ(engine.head_host, "node1");
  }
}

base::Environment of_task_one(const Mpiexec& mpiexec) {
  base::Environment environment;
  environment.set("PMI_FD", std::to_string(*mpiexec.engine(0).pmi_fd));
  for (const auto& [name, value] :
       {std::pair("PMI_RANK", "1"), std::pair("PMI_SIZE", "2"), std::pair("MPI_LOCALNRANKS", "1"),
        std::pair("MPI_LOCALRANKID", "0")})
    environment.set(name, value);
  return environment;
}

// mpiexec, too, would wait for tasks that do not come.
TEST(PmiMeeting, WhoOnlyLooksAsksNobody) {
  for (const char* look : {"--dry-run", "--print-config"}) {
    const Mpiexec mpiexec("");
    const base::Environment environment = of_task_one(mpiexec);
    const CommandLine line = gather_options({look, "true"}, environment);
    EXPECT_EQ(mpiexec.asked(), "") << look;
    ASSERT_TRUE(line.values.contains("rdzv-endpoint")) << look;
    EXPECT_THAT(line.values.at("rdzv-endpoint").value, HasSubstr("host-of-task-0"));
  }
}

TEST(PmiMeeting, ReadingTheOptionsAsksNobodyAndLeavesTheHeadOpen) {
  const Mpiexec mpiexec(kBegun + kMet);
  CommandLine line = gather_options({"true"}, of_task_one(mpiexec));
  EXPECT_EQ(mpiexec.asked(), "");
  EXPECT_EQ(line.engine.open, EngineQuestion::kHead);
  EXPECT_EQ(line.values.at("nnodes").value, "2");
  EXPECT_FALSE(line.has("rdzv-endpoint"));
  meet_engine(line);
  EXPECT_EQ(line.engine.open, EngineQuestion::kNone);
  EXPECT_THAT(mpiexec.asked(), HasSubstr("barrier_in"));
  EXPECT_EQ(line.values.at("rdzv-endpoint").value, "node7:61500");
  EXPECT_EQ(line.values.at("rdzv-id").value, "kvs_7");
  EXPECT_EQ(line.values.at("node-rank").value, "1");
  EXPECT_THAT(line.engine.note, HasSubstr("hence --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint="));
  meet_engine(line);  // nothing is open any more
  EXPECT_EQ(mpiexec.asked(), "");
}

// What is said to who asks, once, at a port.
class Port {
 public:
  explicit Port(const std::string& answers)
      : server_([this, answers] {
          const base::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
          EXPECT_EQ(::send(client.get(), answers.data(), answers.size(), MSG_NOSIGNAL),
                    static_cast<ssize_t>(answers.size()));
          ::shutdown(client.get(), SHUT_WR);
          char text[1024];
          for (ssize_t n; (n = ::recv(client.get(), text, sizeof text, 0)) > 0;)
            asked_.append(text, static_cast<std::size_t>(n));
        }) {}
  Engine engine(int task, int tasks_on_node) const {
    Engine result;
    result.name = "MPICH";
    result.task = task;
    result.tasks_on_node = tasks_on_node;
    result.pmi_port = "127.0.0.1:" + std::to_string(base::local_port(listener_.get()));
    return result;
  }
  // When the client has gone.
  std::string asked() {
    server_.join();
    return asked_;
  }

 private:
  const base::UniqueFd listener_ = base::listen_tcp("127.0.0.1", 0);
  std::string asked_;
  std::thread server_;
};

const std::string kIntroduced =
    "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n";

TEST(PmiMeeting, AtAPortTheTaskSaysWhoItIsAndLearnsHowManyThereAre) {
  Port port(kIntroduced);
  Engine engine = port.engine(1, 1);
  count_by_pmi(engine, soon());
  EXPECT_EQ(engine.tasks, 2);
  EXPECT_EQ(engine.nodes, std::nullopt);
  ASSERT_TRUE(engine.pmi_fd);
  ::close(*engine.pmi_fd);
  EXPECT_EQ(port.asked(), "cmd=initack pmiid=1\n");
}

TEST(PmiMeeting, WhoKnowsTheHeadAsksAPortForNoMore) {
  Port port(kIntroduced);
  Engine engine = port.engine(1, 2);
  engine.head_host = "h1";
  count_by_pmi(engine, soon());
  EXPECT_EQ(engine.tasks, 2);
  EXPECT_EQ(engine.nodes, 1);
  EXPECT_FALSE(engine.pmi_fd);
  EXPECT_EQ(port.asked(), "cmd=initack pmiid=1\n");
}

TEST(PmiMeeting, ReadingTheOptionsLeavesOpenHowManyTasksThereAre) {
  Port port(kIntroduced);
  base::Environment environment;
  environment.set("PMI_PORT", port.engine(1, 1).pmi_port);
  for (const auto& [name, value] :
       {std::pair("PMI_ID", "1"), std::pair("MPI_LOCALNRANKS", "1"),
        std::pair("MPI_LOCALRANKID", "0"), std::pair("MASTER_ADDR", "h1")})
    environment.set(name, value);
  CommandLine line = gather_options({"true"}, environment);
  EXPECT_EQ(line.engine.open, EngineQuestion::kTasks);
  EXPECT_FALSE(line.has("nnodes"));
  meet_engine(line);
  EXPECT_EQ(line.engine.open, EngineQuestion::kNone);
  EXPECT_EQ(line.values.at("nnodes").value, "2");
  EXPECT_EQ(line.values.at("rdzv-endpoint").value, "h1");
  EXPECT_EQ(port.asked(), "cmd=initack pmiid=1\n");
}

TEST(PmiMeeting, APortThatDoesNotAnswerIsAnError) {
  for (const char* answers : {"", "cmd=initack rc=0\ncmd=set size=x\n", "cmd=initack rc=-1\n",
                              "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\n"}) {
    Port port(answers);
    Engine engine = port.engine(0, 1);
    EXPECT_THROW(count_by_pmi(engine, soon()), base::Error) << answers;
    port.asked();
  }
}

// Two at a time on one machine, and nobody has named a port; one of them tells by a port how many
// there are.
TEST(MpichJobs, SideBySideDoNotMeetEachOther) {
  if (testing_support::run_command({"sh", "-c", "command -v mpiexec.hydra"}).exit_code != 0)
    GTEST_SKIP() << "no MPICH here";
  const LauncherJob folder;
  // Open for reading once somebody has it open for writing.
  const std::string go = folder.folder() + "/go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  const std::string program =
      "echo up $RANK of $WORLD_SIZE at $MASTER_PORT; : <" + go + "; echo ends $TORCHELASTIC_RUN_ID";
  std::vector<std::unique_ptr<Command>> jobs;
  for (const char* mode : {"-genvall", "-pmi-port"}) {
    std::vector<std::string> words = {"mpiexec.hydra", mode};
    for (const char* word : {"-n", "3", DTRUN_BINARY, "--adopt", "--tag=never", "sh", "-c"})
      words.emplace_back(word);
    words.push_back(program);
    jobs.push_back(std::make_unique<Command>(words, CommandOptions{}));
  }
  for (const auto& job : jobs)
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(job->next_line("up"));
  const base::UniqueFd open(::open(go.c_str(), O_RDWR | O_CLOEXEC));
  for (const auto& job : jobs) {
    const CommandResult result = job->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, AllOf(HasSubstr("up 0 of 3 at 6"), HasSubstr("up 2 of 3 at 6"),
                                  HasSubstr("ends kvs_")));
  }
}

}  // namespace
}  // namespace dtrun::launcher
