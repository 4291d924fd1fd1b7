// Options from files, which source goes before which, and what --print-config says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json/value.hpp>
#include <filesystem>
#include <fstream>

#include "dtrun/base/json.h"
#include "options/option_names.h"
#include "options/options.h"
#include "preview/inquiry.h"
#include "sources/config_file.h"
#include "sources/config_report.h"
#include "sources/option_sources.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::error_of;

// What the file says of an option; "-" where nothing.
std::string said(const std::string& text, const char* name) {
  CommandLine line;
  add_config_text(text, "job.conf", line);
  return line.values.contains(name) ? line.values.at(name).value : "-";
}

TEST(ConfigFile, SaysOneOptionInEachLine) {
  const std::string text =
      "# of my jobs\n"
      "\n"
      "nproc_per_node = 4\r\n"
      "  role=\"a # b\\t\\\"\\\\\" # the trainers\n"
      "rdzv-id = 'x\\y'\n"
      "log_dir = /logs/#1 of all # there\n"
      "rdzv_conf = join_timeout=3,is_host=true\n"
      "local_addr = \"\"\n"
      "module = true\n"
      "verbose = 0";
  EXPECT_EQ(said(text, "nproc-per-node"), "4");
  EXPECT_EQ(said(text, "role"), "a # b\t\"\\");
  EXPECT_EQ(said(text, "rdzv-id"), "x\\y");
  EXPECT_EQ(said(text, "log-dir"), "/logs/#1 of all");
  EXPECT_EQ(said(text, "rdzv-conf"), "join_timeout=3,is_host=true");
  EXPECT_EQ(said(text, "local-addr"), "");
  EXPECT_EQ(said(text, "module"), "1");
  EXPECT_EQ(said(text, "verbose"), "-");
}

TEST(ConfigFile, ThatIsWrongIsNamedWithItsLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"[dtrun]", "is a section"},
      {"nproc_per_node", "is not NAME = VALUE"},
      {"= 4", "names an unknown option, ''"},
      {"nproc = 4", "names an unknown option, 'nproc'"},
      {"nporc_per_node = 4", "did you mean --nproc_per_node"},
      {"reference = man", "names an unknown option, 'reference'"},
      {"help = true", "sets help"},
      {"config = other.conf", "sets config"},
      {"completion = bash", "sets completion"},
      {"role =", "has no value after '='"},
      {"role = # nothing", "has no value after '='"},
      {"role = \"open", "a quote that does not end"},
      {"role = \"a\" b", "has 'b' after the value"},
      {"role = \"\\x\"", "an unknown escape"},
      {"role = \"\\x1\"", "an unknown escape"},
      {"role = \"\\xg1\"", "an unknown escape"},
      {"role = \"\\e\"", "an unknown escape"},
      {"role = \"\\", "an unknown escape"},
      {"module = yes", "sets module to 'yes'"},
      {"role = a\x01", "a control character"},
      {"rdzv_id = first", "repeats rdzv_id"},
  };
  for (const auto& [text, words] : wrong) {
    CommandLine line;
    const auto error = error_of(
        [&] { add_config_text(std::string("rdzv_id = 1\n#\n") + text, "job.conf", line); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), base::ErrorCode::kUsage) << text;
    EXPECT_THAT(error->summary(), testing::StartsWith("job.conf:3 ")) << text;
    EXPECT_THAT(error->what(), HasSubstr(words)) << text;
    EXPECT_NE(error->remedy(), "") << text;
  }
}

TEST(ConfigFile, ReadsBackWhatIsWrittenForIt) {
  for (const std::string value : {"a", "", " a", "a b", "a\"b", "\"", "'", "a#b", "a\\b", "a\nb",
                                  "a\tb", "#", "a=b", "a\rb", "\x1b[31m",
                                  "\x01"
                                  "2",
                                  "\x7f", "\xff"})
    EXPECT_EQ(said("role = " + written_in_config(value) + " # told", "role"), value) << value;
}

TEST(ConfigFile, MayBeginAsEditorsOfWindowsBeginIt) {
  EXPECT_EQ(said("\xef\xbb\xbfrole = a\r\n", "role"), "a");
}

class SourcesTest : public testing::Test {
 protected:
  SourcesTest() {
    folder_ = testing::TempDir() + "/dtrun_config_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_ + "/dtrun");
    environment_.set("XDG_CONFIG_HOME", folder_);
  }
  ~SourcesTest() override {
    std::error_code ignored;  // what is left is below the test's own folder
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  GivenValue role(const std::vector<std::string>& words) const {
    return gather_options(words, environment_).values.at("role");
  }

  std::string folder_;
  base::Environment environment_;
};

TEST_F(SourcesTest, GoBeforeEachOtherAsPromised) {
  const std::string users = write("dtrun/config", "role = users\nnproc_per_node = 2\n");
  EXPECT_EQ(role({"x"}).value, "users");
  EXPECT_EQ(role({"x"}).origin, users + ":1: role");
  const std::string file = write("job.conf", "\nrole = file\n");
  EXPECT_EQ(role({"--config", file, "x"}).value, "file");
  EXPECT_EQ(role({"--config", file, "x"}).kind, Origin::kFile);
  environment_.set("DTRUN_CONFIG", file);
  EXPECT_EQ(role({"x"}).origin, file + ":2: role");
  environment_.set("DTRUN_ROLE", "own");
  EXPECT_EQ(role({"x"}).kind, Origin::kOwnVariable);
  environment_.set("PET_ROLE", "pet");
  EXPECT_EQ(role({"x"}).kind, Origin::kTorchVariable);
  EXPECT_EQ(role({"--role=flag", "x"}).origin, "--role");
  EXPECT_EQ(gather_options({"x"}, environment_).users_file, users);
}

TEST_F(SourcesTest, GoBeforeEachOtherAlsoWhereTheySayNo) {
  const auto is_verbose = [&](const std::vector<std::string>& words) {
    return gather_options(words, environment_).values.contains("verbose");
  };
  write("dtrun/config", "verbose = true\n");
  EXPECT_TRUE(is_verbose({"x"}));
  const std::string quiet = write("quiet.conf", "verbose = false\n");
  EXPECT_FALSE(is_verbose({"--config=" + quiet, "x"}));
  EXPECT_TRUE(is_verbose({"--config=" + quiet, "-v", "x"}));
  environment_.set("DTRUN_VERBOSE", "0");
  EXPECT_FALSE(is_verbose({"x"}));
  const CommandLine line = gather_options({"--print-config", "x"}, environment_);
  EXPECT_THAT(answer_to_inquiry(line).value(),
              testing::ContainsRegex("\nverbose = false +# DTRUN_VERBOSE\n"));
}

TEST_F(SourcesTest, GoBeforeWhatSlurmTells) {
  write("dtrun/config", "nproc_per_node = 2\n");
  for (const auto& [name, value] :
       {std::pair("SLURM_JOB_ID", "7"), std::pair("SLURM_STEP_ID", "0"),
        std::pair("SLURM_PROCID", "1"), std::pair("SLURM_NODEID", "1"),
        std::pair("SLURM_STEP_NUM_NODES", "2"), std::pair("SLURM_STEP_NUM_TASKS", "2"),
        std::pair("SLURM_STEP_NODELIST", "n[1-2]"), std::pair("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        std::pair("SLURM_GPUS_ON_NODE", "4")})
    environment_.set(name, value);
  const CommandLine line = gather_options({"x"}, environment_);
  EXPECT_EQ(line.values.at("nproc-per-node").value, "2");
  EXPECT_EQ(line.values.at("nnodes").kind, Origin::kEngine);
  EXPECT_THAT(config_report(line), AllOf(HasSubstr("# Slurm step 7.0's nnodes"),
                                         HasSubstr("# " + folder_ + "/dtrun/config:1\n")));
}

TEST_F(SourcesTest, AreFoundBelowHomeToo) {
  environment_.unset("XDG_CONFIG_HOME");
  EXPECT_FALSE(gather_options({"x"}, environment_).values.contains("role"));
  environment_.set("HOME", folder_);
  std::filesystem::create_directories(folder_ + "/.config/dtrun");
  write(".config/dtrun/config", "role = home\n");
  EXPECT_EQ(role({"x"}).value, "home");
}

TEST_F(SourcesTest, ThatCannotBeReadAreNamed) {
  const auto missing = error_of([&] { gather_options({"--config=/no/such/file", "x"}, {}); });
  ASSERT_TRUE(missing);
  EXPECT_THAT(missing->what(), AllOf(HasSubstr("--config=/no/such/file"), HasSubstr("ENOENT")));
  EXPECT_TRUE(error_of([&] { gather_options({"--config=" + folder_, "x"}, {}); }));
  const std::string huge = write("huge", std::string(70000, '\n'));
  const auto error = error_of([&] { gather_options({"--config=" + huge, "x"}, {}); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("is too long for a configuration file"));
  // Who only asks is answered, whatever the file says.
  EXPECT_FALSE(error_of([&] { gather_options({"--config=/no/such/file", "--help"}, {}); }));
}

TEST_F(SourcesTest, ThatAreThereAndCannotBeReadAreNoneThatAreAbsent) {
  const std::string users = folder_ + "/dtrun/config";
  std::filesystem::create_symlink("config", users);
  const auto loop = error_of([&] { gather_options({"x"}, environment_); });
  ASSERT_TRUE(loop);
  EXPECT_THAT(loop->what(), AllOf(HasSubstr(users), HasSubstr("ELOOP")));
  std::filesystem::remove(users);
  std::filesystem::create_directory(users);
  const auto folder = error_of([&] { gather_options({"x"}, environment_); });
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->code(), base::ErrorCode::kUsage);
  EXPECT_THAT(folder->what(), HasSubstr("is a folder"));
  std::filesystem::remove(users);
  EXPECT_TRUE(gather_options({"x"}, environment_).users_file.empty());
}

TEST_F(SourcesTest, AreBlamedForAValueThatIsWrong) {
  const std::string file = write("job.conf", "nproc_per_node = many\n");
  const auto error = error_of([&] { parse_options("dtrun", {"--config", file, "x"}, {}); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr(file + ":1: nproc_per_node=many must be a number"));
}

TEST(PrintConfig, IsAFileThatSaysTheSameAgain) {
  base::Environment environment;
  environment.set("PET_RDZV_CONF", "join_timeout=3");
  const CommandLine line =
      gather_options({"--print-config", "-v", "--nproc=3", "--role= a#"}, environment);
  const std::string report = answer_to_inquiry(line).value();
  EXPECT_THAT(report, AllOf(HasSubstr("\nrole = \" a#\""), HasSubstr("  # --nproc\n"),
                            HasSubstr("  # PET_RDZV_CONF\n"), HasSubstr("# max_restarts = 0")));
  CommandLine again;
  add_config_text(report, "report", again);
  EXPECT_EQ(again.values.size(), 4u) << report;
  for (const auto& [name, given] : again.values) EXPECT_EQ(given.value, line.values.at(name).value);
  EXPECT_EQ(answer_to_inquiry(gather_options({"x"}, {})), std::nullopt);
}

TEST_F(SourcesTest, DoNotWriteDownWhatSlurmTells) {
  for (const auto& [name, value] : {std::pair("SLURM_JOB_ID", "1"),
                                    {"SLURM_PROCID", "1"},
                                    {"SLURM_STEP_NODELIST", "n[1-2]"},
                                    {"SLURM_NODEID", "1"},
                                    {"SLURM_STEP_NUM_NODES", "2"},
                                    {"SLURM_STEP_NUM_TASKS", "2"}})
    environment_.set(name, value);
  const std::string report =
      answer_to_inquiry(gather_options({"--print-config", "--role=r"}, environment_)).value();
  EXPECT_THAT(report, AllOf(HasSubstr("\n# node_rank = 1 "),
                            HasSubstr("Slurm step 1.0's node_rank"), HasSubstr("\nrole = r")));
}

TEST_F(SourcesTest, AreNamedInOneLineWhateverTheirName) {
  const std::string path = write("a\nrole = b", "role = c\n");
  const CommandLine line = gather_options({"--print-config", "--config=" + path}, environment_);
  CommandLine again;
  add_config_text(answer_to_inquiry(line).value(), "report", again);
  EXPECT_EQ(again.values.at("role").value, "c");
}

TEST(PrintConfig, IsJsonWithEveryOption) {
  const CommandLine line = gather_options({"--print-config=json", "--nproc=3"}, {});
  const auto report = base::parse_json(answer_to_inquiry(line).value(), "the report");
  EXPECT_EQ(report.at("nproc_per_node").at("value"), "3");
  EXPECT_EQ(report.at("nproc_per_node").at("origin"), "command line");
  EXPECT_EQ(report.at("nproc_per_node").at("where"), "--nproc");
  EXPECT_EQ(report.at("nnodes").at("origin"), "default");
  EXPECT_EQ(report.at("nnodes").at("value"), "1");
  EXPECT_TRUE(report.at("node_rank").at("value").is_null());
  for (const OptionRow& row : option_table())
    EXPECT_EQ(report.as_object().contains(spelling_of(row).substr(2)),
              row.reach != OptionReach::kCommandLineOnly)
        << row.name;
}

TEST(PrintConfig, NeverShowsATokenThatStandsInTheWrongPlace) {
  for (const char* form : {"--print-config", "--print-config=json"}) {
    const CommandLine line = gather_options({form, "--rdzv_conf=token=my-secret"}, {});
    const auto error = error_of([&] { answer_to_inquiry(line); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), Not(HasSubstr("my-secret")));
  }
}

TEST(Inquiry, InAFormThatIsNotKnownIsRefused) {
  for (const char* word : {"--print-config=xml", "--completion=zsh", "--reference=html",
                           "--help=no-such-option", "--help="}) {
    const auto error = error_of([&] { answer_to_inquiry(gather_options({word}, {})); });
    ASSERT_TRUE(error) << word;
    EXPECT_EQ(error->code(), base::ErrorCode::kUsage) << word;
  }
  EXPECT_THAT(answer_to_inquiry(gather_options({"--version"}, {})).value(),
              AllOf(testing::StartsWith("dtrun "), HasSubstr("commit: "), HasSubstr("Boost 1.")));
}

}  // namespace
}  // namespace dtrun::launcher
