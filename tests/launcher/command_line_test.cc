// What a command line says, before anybody asks what it means: spellings, prefixes, values,
// variables, and where the program begins. As argparse reads it for torchrun.
#include "options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "options/help_text.h"
#include "options/option_names.h"
#include "options/usage_text.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::error_of;

using Words = std::vector<std::string>;

std::vector<std::string> names_of_torchrun() {
  std::vector<std::string> names;
  for (const OptionRow& row : option_table())
    if (is_torchruns(row)) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> prefixes_of(const std::vector<std::string>& names) {
  std::set<std::string> result;
  for (const std::string& name : names)
    for (std::size_t size = 1; size <= name.size(); ++size) result.insert(name.substr(0, size));
  return {result.begin(), result.end()};
}

std::string with_underscores(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// "--nproc_per_node=4" or "4" where it was given, "" where it was not.
std::string value_of(const Words& words, const char* name,
                     const base::Environment& variables = {}) {
  const CommandLine line = read_command_line(words, variables);
  return line.values.contains(name) ? line.values.at(name).value : "";
}

TEST(OptionTable, EveryNameStandsOnceAndIsSpelledWithDashes) {
  std::set<std::string> names;
  std::set<char> letters;
  for (const OptionRow& row : option_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_THAT(row.name, Not(HasSubstr("_")));
    if (row.letter != 0) {
      EXPECT_TRUE(letters.insert(row.letter).second) << row.letter;
    }
    if (row.otherwise != nullptr) {
      EXPECT_NE(demand_of(row), ValueDemand::kNone) << row.name;
    }
    EXPECT_EQ(find_exactly(with_underscores(row.name)), &row);
  }
  EXPECT_EQ(names_of_torchrun().size(), 31u);  // of the newest: 30, and --help
}

TEST(OptionTable, AlternativesInLowerCaseAreTheWordsToWrite) {
  EXPECT_THAT(choices_of(*find_exactly("nproc-per-node")), ElementsAre("cpu", "gpu", "auto"));
  EXPECT_THAT(choices_of(*find_exactly("rdzv-backend")), ElementsAre("static", "c10d", "etcd-v2"));
  EXPECT_THAT(choices_of(*find_exactly("exit")), ElementsAre("first", "max"));
  EXPECT_THAT(choices_of(*find_exactly("dry-run")), ElementsAre("json"));
  for (const char* name : {"role", "rdzv-endpoint", "redirects", "standalone"})
    EXPECT_THAT(choices_of(*find_exactly(name)), IsEmpty()) << name;
}

TEST(Prefixes, WhatIsUniqueAmongTorchrunsOptionsMeansItHereToo) {
  const std::vector<std::string> names = names_of_torchrun();
  int unique = 0;
  for (const std::string& prefix : prefixes_of(names)) {
    std::vector<std::string> meant;
    for (const std::string& name : names)
      if (name == prefix) meant = {name};
    for (const std::string& name : names)
      if ((meant.empty() || meant[0] != prefix) && name.starts_with(prefix)) meant.push_back(name);
    if (meant.size() != 1) continue;
    ++unique;
    EXPECT_EQ(find_option("--" + prefix, prefix).name, meant[0]);
    EXPECT_EQ(find_option("--" + prefix, with_underscores(prefix)).name, meant[0]);
  }
  EXPECT_GT(unique, 200);
  EXPECT_STREQ(find_option("--re", "re").name, "redirects");
  EXPECT_STREQ(find_option("--log_d", "log_d").name, "log-dir");
  EXPECT_STREQ(find_option("--nproc", "nproc").name, "nproc-per-node");
  EXPECT_STREQ(find_option("--port", "port").name, "port-range");
  EXPECT_STREQ(find_option("--rest", "restart-s").name, "restart-scope");
}

TEST(Prefixes, AnAmbiguousPrefixIsRefusedWithWhatItCouldBe) {
  const auto error = error_of([] { find_option("--log=x", "log"); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), AllOf(HasSubstr("--log=x is ambiguous"), HasSubstr("--log_dir"),
                                   HasSubstr("--logs_specs")));
  EXPECT_TRUE(error_of([] { find_option("--restart", "restart"); }));
  EXPECT_TRUE(error_of([] { find_option("--=3", ""); }));
}

TEST(Program, NothingAfterItsNameIsLookedAt) {
  Words words = {"--nproc-per-node", "2", "train.py"};
  Words expected = {"train.py"};
  for (const std::string& prefix : prefixes_of(names_of_torchrun())) {
    expected.push_back("--" + prefix);
    expected.push_back("--" + with_underscores(prefix) + "=1");
  }
  for (const char* word : {"-m", "-r", "-t3", "-h", "--", "-", "", "--no-such-option", "--version"})
    expected.emplace_back(word);
  words.insert(words.end(), expected.begin() + 1, expected.end());
  const CommandLine line = read_command_line(words, {});
  EXPECT_EQ(line.program, expected);
  EXPECT_EQ(line.values.size(), 1u);
}

TEST(Program, MayFollowTwoDashesOrBeOne) {
  EXPECT_THAT(read_command_line({"--", "--nnodes=2", "x"}, {}).program,
              ElementsAre("--nnodes=2", "x"));
  EXPECT_THAT(read_command_line({"-", "x"}, {}).program, ElementsAre("-", "x"));
  EXPECT_THAT(read_command_line({"", "x"}, {}).program, ElementsAre("", "x"));
  EXPECT_THAT(read_command_line({"-m", "package.module", "-m"}, {}).program,
              ElementsAre("package.module", "-m"));
  EXPECT_THAT(read_command_line({}, {}).program, IsEmpty());
}

TEST(Values, AreTakenAsArgparseTakesThem) {
  EXPECT_EQ(value_of({"--role=a=b", "x"}, "role"), "a=b");
  EXPECT_EQ(value_of({"--role=", "x"}, "role"), "");
  EXPECT_EQ(value_of({"--role", "", "x"}, "role"), "");
  EXPECT_EQ(value_of({"--role", "a", "--role", "b", "x"}, "role"), "b");
  EXPECT_EQ(value_of({"--node_rank", "-1", "x"}, "node-rank"), "-1");
  EXPECT_EQ(value_of({"--role", "-.5", "x"}, "role"), "-.5");
  EXPECT_EQ(value_of({"--role", "-", "x"}, "role"), "-");
  EXPECT_EQ(value_of({"--role", "-a b", "x"}, "role"), "-a b");
  EXPECT_EQ(value_of({"--role=--nnodes", "x"}, "role"), "--nnodes");
  EXPECT_EQ(value_of({"-vm", "x"}, "module"), "1");
  EXPECT_EQ(value_of({"--help=tee", "x"}, "help"), "tee");
  EXPECT_EQ(value_of({"--help", "tee"}, "help"), "1");
  EXPECT_EQ(
      read_command_line({"--rdzv-conf", "a='1',b=\"2\"", "x"}, {}).values.at("rdzv-conf").origin,
      "--rdzv-conf");
}

// CLI11 2.1 would read "--role= x" as the role x, "[a,b]" as two values and "{}" as none.
TEST(Values, AreNotWhatCli11WouldMakeOfTheLine) {
  const CommandLine line = read_command_line({"--role=", "--log_dir", "[a,b]", "x", "y"}, {});
  EXPECT_EQ(line.get("role").value, "");
  EXPECT_EQ(line.get("log-dir").value, "[a,b]");
  EXPECT_THAT(line.program, ElementsAre("x", "y"));
  for (const char* text : {"[a,b]", "{}", "%%", "--nnodes=2", "-m", "--", "a=b", " ", "true"}) {
    EXPECT_EQ(value_of({std::string("--role=") + text, "x"}, "role"), text);
    EXPECT_EQ(value_of({std::string("--dry-run=") + text, "x"}, "dry-run"), text);
    EXPECT_EQ(value_of({std::string("-r=") + text, "-v", "x"}, "redirects"), text);
    EXPECT_THAT(read_command_line({std::string("-x") + text, "x"}, {}).get("env").all,
                ElementsAre(text));
  }
  // What follows an option whose value may be left out is the program.
  EXPECT_THAT(read_command_line({"--dry-run", "json"}, {}).program, ElementsAre("json"));
}

TEST(Values, OfARepeatedOptionAreTheLastOrAll) {
  const CommandLine line = read_command_line(
      {"-x", "A=1", "-mv", "--env=B", "--role=a", "-r3", "--nproc-per_node=2", "--no-py",
       "--redirects", "0:1", "--nproc_per-node", "3", "-xA=2", "--module", "x"},
      {});
  EXPECT_THAT(line.get("env").all, ElementsAre("A=1", "B", "A=2"));
  EXPECT_EQ(line.get("env").origin, "-x");
  EXPECT_EQ(line.get("redirects").value, "0:1");
  EXPECT_EQ(line.get("redirects").origin, "--redirects");
  EXPECT_EQ(line.get("nproc-per-node").value, "3");
  EXPECT_EQ(line.get("nproc-per-node").origin, "--nproc_per-node");
  EXPECT_EQ(line.get("module").value, "1");
  EXPECT_EQ(line.get("no-python").origin, "--no-py");
  EXPECT_EQ(line.values.size(), 7u);
}

TEST(Values, OfEveryOptionAreReadInEitherSpelling) {
  for (const OptionRow& row : option_table()) {
    const bool flag = demand_of(row) == ValueDemand::kNone;
    for (const std::string& name : {std::string("--") + row.name, spelling_of(row)}) {
      EXPECT_EQ(value_of({flag ? name : name + "=-v", "x"}, row.name), flag ? "1" : "-v") << name;
      if (demand_of(row) == ValueDemand::kOptional) {
        EXPECT_EQ(value_of({name, "x"}, row.name), "1") << name;
      }
    }
    if (row.letter == 0) continue;
    const std::string letter = {'-', row.letter};
    const bool needed = demand_of(row) == ValueDemand::kNeeded;
    EXPECT_EQ(value_of({"-v" + letter.substr(1), needed ? "" : "x", "x"}, row.name),
              needed ? "" : "1")
        << letter;
  }
}

TEST(Values, ThatAreNotThereAreMissed) {
  for (const Words& words :
       {Words{"--role"}, Words{"--role", "--nnodes=2", "x"}, Words{"--role", "-m", "x"},
        Words{"--role", "--", "x"}, Words{"-mv=1", "x"}, Words{"--module=1", "x"},
        Words{"--module=", "x"}, Words{"--dry-run=", "x"}, Words{"-vr"}, Words{"-zm", "y"},
        Words{"-m-", "x"}}) {
    const auto error = error_of([&] { read_command_line(words, {}); });
    ASSERT_TRUE(error) << words[0];
    EXPECT_EQ(error->code(), base::ErrorCode::kUsage);
    EXPECT_NE(error->remedy(), "") << words[0];
  }
}

TEST(Variables, SetEveryOptionInTorchrunsFormAndOurs) {
  for (const OptionRow& row : option_table()) {
    base::Environment environment;
    environment.set(variable_of(row, "DTRUN_"), "7");
    const bool reached = row.reach != OptionReach::kCommandLineOnly;
    const std::string read = demand_of(row) == ValueDemand::kNeeded ? "7" : "1";
    EXPECT_EQ(value_of({"x"}, row.name, environment), reached ? read : "") << row.name;
    environment.set(variable_of(row, "PET_"), "0");
    const std::string none = demand_of(row) == ValueDemand::kNeeded ? "0" : "";
    EXPECT_EQ(value_of({"x"}, row.name, environment), reached ? none : "") << row.name;
  }
}

TEST(Variables, OfAFlagAreNumbersAsInTorchrun) {
  base::Environment environment;
  for (const char* value : {"1", "2", "-1"}) {
    environment.set("PET_STANDALONE", value);
    EXPECT_EQ(value_of({"x"}, "standalone", environment), "1") << value;
  }
  for (const char* value : {"", "true", "yes"}) {
    environment.set("PET_STANDALONE", value);
    const auto error = error_of([&] { read_command_line({"x"}, environment); });
    ASSERT_TRUE(error) << value;
    EXPECT_THAT(error->what(), HasSubstr("PET_STANDALONE="));
    EXPECT_FALSE(error_of([&] { read_command_line({"--standalone", "x"}, environment); }));
  }
}

TEST(Help, HasEveryOptionOfThisVersionInItsGroupAndFitsATerminal) {
  const std::string help = help_text();
  std::size_t at = 0;
  for (const OptionRow& row : option_table()) {
    if (row.group == OptionGroup::kHidden) continue;
    const auto found = help.find("\n" + std::string(row.letter != 0 ? "  -" : "      --"), at);
    ASSERT_NE(found, std::string::npos) << row.name;
    EXPECT_EQ(help.find(spelling_of(row), found), found + 7) << row.name;
    at = found + 1;
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 92u) << line;
  EXPECT_LT(help.find(usage_examples()[0].command), help.find("--nproc_per_node N"));
  EXPECT_THAT(help, AllOf(HasSubstr("(default: 30)"), Not(HasSubstr("\n\n\n"))));
}

TEST(Help, OfOneOptionTellsItsVariablesAndItsDefault) {
  EXPECT_THAT(help_text(*find_exactly("max-restarts")),
              AllOf(HasSubstr("--max_restarts N"), HasSubstr("default: 0"),
                    HasSubstr("PET_MAX_RESTARTS"), HasSubstr("torchrun has it")));
  EXPECT_THAT(help_text(*find_exactly("version")), Not(HasSubstr("PET_")));
}

}  // namespace
}  // namespace dtrun::launcher
