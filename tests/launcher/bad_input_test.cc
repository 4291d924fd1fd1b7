// Command lines that cannot work: each says what, why and what to try, with the exit code that
// docs/errors.md promises, and leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "dtrun/base/json.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/utf8.h"
#include "launcher/launcher_job.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::CommandResult;

struct BadInput {
  std::vector<std::string> arguments;
  int exit_code;
  std::vector<std::string> words;
};

std::ostream& operator<<(std::ostream& out, const BadInput& input) {
  for (const std::string& word : input.arguments) out << word << ' ';
  return out;
}

class BadInputTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, IsAnErrorThatSaysWhatAndWhatToTry) {
  LauncherJob job;
  job.options().environment["CUDA_VISIBLE_DEVICES"] = "";
  const CommandResult result = job.run(GetParam().arguments);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.describe();
  EXPECT_THAT(result.err, testing::StartsWith("dtrun: error: "));
  for (const std::string& word : GetParam().words) EXPECT_THAT(result.err, HasSubstr(word));
  EXPECT_THAT(result.err, HasSubstr("\n  try: "));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(job.left_behind(), IsEmpty());
}

TEST_P(BadInputTest, IsTheSameInJson) {
  LauncherJob job;
  job.options().environment["CUDA_VISIBLE_DEVICES"] = "";
  job.options().environment["DTRUN_LOG_FORMAT"] = "json";
  const CommandResult result = job.run(GetParam().arguments);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.describe();
  const boost::json::value object = base::parse_json(result.err, "standard error");
  const std::string message(object.as_object().at("message").as_string());
  for (const std::string& word : GetParam().words)
    EXPECT_THAT(base::without_controls(message), HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, BadInputTest,
    testing::Values(
        BadInput{{"--nporc=4", "true"}, 64, {"--nporc", "did you mean --nproc_per_node"}},
        BadInput{{"--nporc_per_node=4", "true"},
                 64,
                 {"--nporc_per_node", "did you mean --nproc_per_node"}},
        BadInput{{"--nnodes=\x1b[31m1", "true"}, 64, {"--nnodes=\\x1b[31m1"}},
        BadInput{{"--xyzzy", "true"}, 64, {"--xyzzy"}}, BadInput{{"-q", "true"}, 64, {"-q"}},
        BadInput{{"-vq", "true"}, 64, {"-vq"}},
        BadInput{{"--n", "true"}, 64, {"ambiguous", "--nnodes", "--nproc_per_node"}},
        BadInput{{"--nproc_per_node"}, 64, {"--nproc_per_node", "needs a value"}},
        BadInput{{"--standalone=1", "true"}, 64, {"--standalone", "takes no value"}},
        BadInput{{"--nproc_per_node=0", "true"}, 64, {"--nproc_per_node=0", "from 1"}},
        BadInput{{"--nproc_per_node=-3", "true"}, 64, {"--nproc_per_node=-3", "from 1"}},
        BadInput{{"--nproc_per_node=abc", "true"}, 64, {"--nproc_per_node=abc", "gpu or auto"}},
        BadInput{{"--nproc_per_node=99999999999999999999", "true"}, 64, {"must be"}},
        BadInput{{"--nproc_per_node=xpu", "true"}, 64, {"--nproc_per_node=xpu cannot be counted"}},
        BadInput{{"--nproc_per_node=", "true"}, 64, {"--nproc_per_node="}},
        BadInput{{"--nproc_per_node=gpu", "true"}, 64, {"no GPU", "CUDA_VISIBLE_DEVICES"}},
        BadInput{{"--nnodes=0", "true"}, 64, {"--nnodes=0"}},
        BadInput{{"--nnodes=1:2", "true"}, 64, {"--nnodes=1:2 needs --rdzv_backend=c10d"}},
        BadInput{{"--nnodes=2:1", "true"}, 64, {"--nnodes=2:1 asks for at least 2"}},
        BadInput{{"--nnodes=1:2:3", "true"}, 64, {"--nnodes=1:2:3 is not N or MIN:MAX"}},
        BadInput{{"--nnodes=one", "true"}, 64, {"--nnodes=one is not N or MIN:MAX"}},
        BadInput{{"--port_range=9:8", "true"}, 64, {"--port_range=9:8 ends"}},
        BadInput{{"--local_addr=h:1", "true"}, 64, {"--local_addr=h:1", "without a port"}},
        BadInput{{"--iface=nosuch0", "true"},
                 64,
                 {"--iface=nosuch0: no such interface", "these are: lo"}},
        BadInput{{"--local_addr=", "true"}, 64, {"--local_addr=", "must be a host"}},
        BadInput{{"--node_rank=1", "true"}, 64, {"--node_rank=1", "1 node"}},
        BadInput{{"--nnodes=2", "--node_rank=2", "true"},
                 64,
                 {"--node_rank=2 does not exist", "the last one is node 1"}},
        BadInput{{"/"}, 126, {"it is a folder", "name a program"}},
        BadInput{{"--help=-q"}, 64, {"--help=-q", "--help lists the options"}},
        BadInput{{"--nnodes=2", "--master_addr=127.0.0.1", "--master_port=0", "true"},
                 64,
                 {"--master_port"}},
        BadInput{{"--nnodes=2", "--master_addr=h", "--standalone", "true"}, 64, {"--standalone"}},
        BadInput{{"--master_port=70000", "true"}, 64, {"--master_port=70000", "65535"}},
        BadInput{{"--master_addr=no.such.host.invalid", "true"}, 69, {"no.such.host.invalid"}},
        BadInput{{"--max_restarts=x", "true"}, 64, {"--max_restarts=x", "no number"}},
        BadInput{{"--rdzv_backend=etcd-v2", "--rdzv_endpoint=etcd1:2379,etcd2:x", "true"},
                 64,
                 {"--rdzv_endpoint=etcd1:2379,etcd2:x", "of etcd"}},
        BadInput{
            {"--rdzv_backend=zookeeper", "true"}, 64, {"zookeeper", "static, c10d or etcd-v2"}},
        BadInput{{"--rdzv_backend=c10d", "--nnodes=2", "true"}, 64, {"needs --rdzv_endpoint"}},
        BadInput{
            {"--rdzv_backend=c10d", "--nnodes=2", "--rdzv_endpoint=h:0", "true"}, 64, {"port 0"}},
        BadInput{{"--rdzv_backend=c10d", "--rdzv_endpoint=h:70000", "true"},
                 64,
                 {"--rdzv_endpoint=h:70000", "no port number"}},
        BadInput{{"--rdzv_endpoint=h:1", "--master_port=2", "true"}, 64, {"the same thing"}},
        BadInput{{"--rdzv_backend=c10d", "--nnodes=2", "--rdzv_endpoint=h:1", "--node_rank=1",
                  "--rdzv_conf=is_host=1", "true"},
                 64,
                 {"--node_rank=1", "is_host=true"}},
        BadInput{{"--rdzv_conf=speed=9", "true"}, 64, {"'speed=9'", "the keys are join_timeout"}},
        BadInput{{"--rdzv_conf=join_timeout", "true"}, 64, {"'join_timeout' is not key=value"}},
        BadInput{{"--rdzv_conf=read_timeout=0", "true"}, 64, {"read_timeout=0", "0.001 or more"}},
        BadInput{{"--rdzv_conf=is_host=maybe", "true"}, 64, {"is_host=maybe", "true or false"}},
        BadInput{{"--rdzv_conf=timeout=1,timeout=2", "true"}, 64, {"timeout=2", "twice"}},
        BadInput{
            {"--rdzv_conf=last_call_timout=1", "true"}, 64, {"did you mean last_call_timeout"}},
        BadInput{{"--rdzv_backend=c10d", "--rdzv_conf=store_type=file", "true"},
                 64,
                 {"store_type=file", "needs --rdzv_endpoint"}},
        BadInput{{"--rdzv_backend=c10d", "--rdzv_endpoint=no.such.host.invalid:1",
                  "--join_timeout=0.1", "true"},
                 69,
                 {"no.such.host.invalid", "--rdzv_endpoint", "getent"}},
        BadInput{{"--pass_local_rank", "--use_env", "true"}, 64, {"--use_env"}},
        BadInput{{"--numa-binding=core", "true"}, 64, {"--numa-binding=core must be", "socket"}},
        BadInput{{"--omp-threads=0", "true"}, 64, {"--omp-threads=0"}},
        BadInput{{"--tee", "4", "true"}, 64, {"--tee", "both"}},
        BadInput{{"-r", "0:x", "true"}, 64, {"-r", "both"}},
        BadInput{{"--stdin=1", "true"}, 64, {"--stdin=1", "ranks 0 to 0"}},
        BadInput{{"--log_dir=/etc/passwd", "true"}, 64, {"--log_dir", "no folder"}},
        BadInput{{"--trace=/usr", "true"}, 64, {"--trace=/usr is a folder"}},
        BadInput{{"--trace=/nowhere/", "true"}, 64, {"--trace=/nowhere/ is a folder"}},
        BadInput{{"--start-method=thread", "true"}, 64, {"--start-method=thread", "forkserver"}},
        BadInput{{"--tag=maybe", "true"}, 64, {"--tag=maybe", "always"}},
        BadInput{{"--shutdown_timeout=-1", "true"}, 64, {"--shutdown_timeout=-1"}},
        BadInput{{"--shutdown_timeout=soon", "true"}, 64, {"--shutdown_timeout=soon"}},
        BadInput{{"--module", "--no_python", "true"}, 64, {"--module", "--no_python"}},
        BadInput{{}, 64, {"no program"}},
        BadInput{{"--nproc_per_node=2", "--"}, 64, {"no program"}},
        BadInput{{"no-such-program-here"}, 127, {"no-such-program-here", "PATH"}},
        BadInput{{""}, 127, {"its name is empty"}},
        BadInput{{"./no-such-program-here"}, 127, {"no such file"}},
        BadInput{{"/etc/passwd"}, 126, {"/etc/passwd"}},
        BadInput{{"/etc"}, 126, {"/etc", "folder"}},
        BadInput{{"--log_dir=/dev/null/x", "true"}, 71, {"/dev/null/x", "--log_dir"}}));

TEST(BadInputTest, AValueFromTheEnvironmentIsBlamedOnItsVariable) {
  for (const char* name : {"PET_NPROC_PER_NODE", "DTRUN_NPROC_PER_NODE"}) {
    LauncherJob job;
    job.options().environment[name] = "abc";
    const CommandResult result = job.run({"true"});
    EXPECT_EQ(result.exit_code, 64);
    EXPECT_THAT(result.err, HasSubstr(std::string(name) + "=abc"));
  }
  LauncherJob job;
  job.options().environment["PET_STANDALONE"] = "yes";
  EXPECT_THAT(job.run({"true"}).err, HasSubstr("PET_STANDALONE=yes"));
  job.options().environment["PET_STANDALONE"] = std::nullopt;
  job.options().environment["PET_TEE"] = "4";
  EXPECT_THAT(job.run({"true"}).err, HasSubstr("PET_TEE=4 must be"));
}

// Of its form, of its values, and where it cannot be read.
TEST(BadInputTest, AConfigurationFileThatIsWrongHasACodeOfItsOwn) {
  const LauncherJob job;
  const std::string file = job.folder() + "/job.conf";
  for (const std::string text :
       {"[section]", "no_such_option = 1", "nproc_per_node = abc", "exit = often", "tee = 4",
        "rdzv_conf = speed=9", "scheduler = none_such", "on_signal = USR1=dance"}) {
    std::ofstream(file) << text << "\n";
    const CommandResult result = run_dtrun({"--config=" + file, "true"});
    EXPECT_EQ(result.exit_code, 78) << text << result.describe();
    EXPECT_THAT(result.err, AllOf(HasSubstr("error: " + file + ":1"), HasSubstr("  try: ")))
        << text;
  }
  EXPECT_EQ(run_dtrun({"--config=" + file + ".not", "true"}).exit_code, 78);
  EXPECT_EQ(run_dtrun({"--config=" + job.folder(), "true"}).exit_code, 78);
  // What the line says goes before, and is the line's own fault.
  EXPECT_EQ(run_dtrun({"--config=" + file, "--on_signal=USR1=sing", "true"}).exit_code, 64);
}

TEST(BadInputTest, ATokenThatIsNoneIsRefusedAndNeverShown) {
  const std::string secret = "my-token";
  LauncherJob job;
  job.options().environment["DTRUN_TOKEN"] = secret;
  CommandResult result = job.run({"--nnodes=2", "--master_addr=h", "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("DTRUN_TOKEN is too short"), HasSubstr("try: "),
                                testing::Not(HasSubstr(secret))));
  const std::string file = job.folder() + "/token";
  std::ofstream(file) << secret << "0123456789abcdef\n";
  ::chmod(file.c_str(), 0644);
  const std::string conf = "--rdzv_conf=token_file=" + file;
  result = job.run({"--nnodes=2", "--master_addr=h", conf, "true"});
  EXPECT_THAT(result.err, HasSubstr("two tokens are given"));
  result = job.run({"--nnodes=2", "--master_addr=h", "--rdzv_conf=token=munge", "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("two tokens are given, DTRUN_TOKEN and token=munge"));
  result = job.run({"--nnodes=2", "--master_addr=h", "--rdzv_conf=token=" + secret, "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("'token=...' must be munge or none"),
                                HasSubstr("token_file="), testing::Not(HasSubstr(secret))));
  job.options().environment["DTRUN_TOKEN"] = std::nullopt;
  result = job.run({"--nnodes=2", "--master_addr=h", conf, "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("others can have read"), HasSubstr("mode is 0644"),
                                testing::Not(HasSubstr(secret))));
  job.options().environment["DTRUN_MUNGE_SOCKET"] = job.folder() + "/nowhere";
  result = job.run({"--nnodes=2", "--master_addr=h", "--rdzv_conf=token=munge", "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("token=munge: "), HasSubstr("try: ")));
}

TEST(BadInputTest, ATokenThatOneNodeDoesNotUseIsTold) {
  LauncherJob job;
  for (const char* key : {"token_file=/nowhere", "store_token=true"}) {
    const CommandResult result = job.run({std::string("--rdzv_conf=") + key, "true"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.err, HasSubstr("has no effect in a job of one node")) << key;
  }
  const CommandResult result = job.run({"--rdzv_conf=store_token=false", "true"});
  EXPECT_EQ(result.err, "") << result.describe();
}

TEST(BadInputTest, TheRanksDoNotSeeTheToken) {
  LauncherJob job;
  job.options().environment["DTRUN_TOKEN"] = "0123456789abcdef";
  const CommandResult result = job.run({"env"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("RANK=0"), testing::Not(HasSubstr("0123456789abcdef"))));
}

TEST(BadInputTest, AnEndpointThatIsEveryNodeItselfIsRefusedInAStepOfSeveral) {
  LauncherJob job;
  for (const auto& [name, value] :
       {std::pair("SLURM_JOB_ID", "7"), std::pair("SLURM_STEP_ID", "0"),
        std::pair("SLURM_PROCID", "0"), std::pair("SLURM_NODEID", "0"),
        std::pair("SLURM_STEP_NUM_TASKS", "2"), std::pair("SLURM_STEP_NUM_NODES", "2"),
        std::pair("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        std::pair("SLURM_STEP_NODELIST", "node[1-2]")})
    job.options().environment[name] = value;
  const CommandResult result =
      job.run({"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:1", "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("'localhost' is every node itself"),
                                HasSubstr("Slurm step 7.0 has 2 nodes"), HasSubstr("node[1-2]")));
  EXPECT_EQ(job.run({"--standalone", "true"}).exit_code, 0);
}

TEST(BadInputTest, APortThatIsTakenIsNamedAndNothingIsStarted) {
  const base::UniqueFd taken = base::listen_tcp("127.0.0.1", 0);
  const std::string port = std::to_string(base::local_port(taken.get()));
  LauncherJob job;
  const CommandResult result = job.run({"--master_port=" + port, "echo", "started"});
  EXPECT_EQ(result.exit_code, 71);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("127.0.0.1:" + port), HasSubstr("EADDRINUSE"), HasSubstr("try: ")));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(job.left_behind(), IsEmpty());
}

TEST(BadInputTest, AScriptWhoseInterpreterIsMissingIsFoundOutAtTheStart) {
  LauncherJob job;
  const std::string script = job.folder() + "/script";
  std::ofstream(script) << "#!/no/such/interpreter\n";
  ::chmod(script.c_str(), 0755);
  CommandResult result = job.run({"--nproc_per_node=3", script});
  EXPECT_EQ(result.exit_code, 127) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("interpreter after its '#!'"));
  std::ofstream(script) << "no header\n";
  result = job.run({script});
  EXPECT_EQ(result.exit_code, 126) << result.describe();
}

TEST(BadInputTest, APythonThatIsMissingIsToldFromTheScript) {
  LauncherJob job;
  job.options().environment["PYTHON_EXEC"] = "/no/such/python";
  const CommandResult result = job.run({"train.py"});
  EXPECT_EQ(result.exit_code, 127) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("/no/such/python"), HasSubstr("the Python program"),
                                HasSubstr("set PYTHON_EXEC")));
}

TEST(BadInputTest, AFolderForTemporaryFilesThatIsNotThereIsReplacedAndThatIsTold) {
  LauncherJob job;
  job.options().environment["TMPDIR"] = "/no/such/folder";
  const CommandResult result = job.run({"true"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("nothing can be written to TMPDIR=/no/such/folder (No such"));
}

TEST(BadInputTest, APortThatIsRootsIsToldAsThat) {
  std::ifstream limit("/proc/sys/net/ipv4/ip_unprivileged_port_start");
  int first = 0;
  if (!(limit >> first) || first <= 80) GTEST_SKIP() << "port 80 is anybody's here";
  std::vector<std::string> words = {DTRUN_BINARY, "--master_port=80", "true"};
  if (::geteuid() == 0) words.insert(words.begin(), {"setpriv", "--reuid=65534", "--clear-groups"});
  const CommandResult result = testing_support::run_command(words);
  EXPECT_EQ(result.exit_code, 71) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("EACCES"), HasSubstr("are root's"),
                                Not(HasSubstr("name an address"))));
}

TEST(BadInputTest, HelpKnowsAnOptionByItsLetterAndItsDashes) {
  for (const char* name : {"--help=-r", "--help=--redirects", "--help=redirects"})
    EXPECT_THAT(run_dtrun({name}).out, HasSubstr("-r, --redirects")) << name;
}

}  // namespace
}  // namespace dtrun::launcher
