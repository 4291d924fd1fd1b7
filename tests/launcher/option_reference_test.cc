// That --help, the manual page, docs/options.md and the completion say what the table says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "options/completion.h"
#include "options/help_text.h"
#include "options/option_names.h"
#include "options/option_reference.h"
#include "options/options.h"
#include "sources/option_sources.h"
#include "support/command.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing_support::error_of;

using Names = std::set<std::string>;

Names names_of_table() {
  Names names;
  for (const OptionRow& row : option_table())
    if (row.group != OptionGroup::kHidden) names.insert(spelling_of(row));
  return names;
}

// What stands behind each match of the expression.
Names names_in(const std::string& text, const std::string& expression) {
  const std::regex pattern(expression, std::regex::multiline);
  Names names;
  for (auto match = std::sregex_iterator(text.begin(), text.end(), pattern);
       match != std::sregex_iterator(); ++match)
    names.insert("--" + std::regex_replace((*match)[1].str(), std::regex("\\\\-"), "-"));
  return names;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OptionReference, EveryFormHasTheOptionsOfTheTableAndNoOther) {
  const Names table = names_of_table();
  EXPECT_EQ(names_in(help_text(), "^ +(?:-[a-z], )?--([a-z_]+)"), table);
  EXPECT_EQ(
      names_in(manual_page(), "^(?:\\\\fB\\\\-[a-z]\\\\fR, )?\\\\fB\\\\-\\\\-([a-z_]+)\\\\fR"),
      table);
  EXPECT_EQ(names_in(option_markdown(), "^\\| (?:`-[a-z]`, )?`--([a-z_]+)"), table);
  EXPECT_EQ(names_in(bash_completion(), "^ +__([a-z_]+)(?:\\|_[a-z])?\\) echo"), table);
}

TEST(OptionReference, TheCommittedDocumentIsTheTables) {
  EXPECT_EQ(content_of(DTRUN_SOURCE_DIR "/docs/options.md"), option_markdown())
      << "make it anew: build/release/bin/dtrun --reference=markdown > docs/options.md";
}

TEST(OptionReference, TheParserTakesEveryDefaultAndEveryWordThatIsOffered) {
  for (const OptionRow& row : option_table()) {
    if (row.reach == OptionReach::kCommandLineOnly) continue;
    std::vector<std::string> values;
    if (row.otherwise != nullptr) values.emplace_back(row.otherwise);
    for (const std::string_view choice : choices_of(row)) values.emplace_back(choice);
    for (const std::string& value : values) {
      const std::string word = spelling_of(row) + "=" + value;
      const auto error = error_of([&] { parse_options("dtrun", {word, "true"}, {}); });
      EXPECT_FALSE(error) << word << "\n" << error->what();
    }
  }
}

// What bash offers for each line, in one bash. `line` is as bash takes it apart; the last word is
// the one that is typed.
std::vector<std::string> offered(const std::vector<std::string>& line) {
  std::string words;
  for (const std::string& word : line) words += " '" + word + "'";
  testing_support::CommandOptions options;
  options.folder = "/";
  const auto result = testing_support::run_command(
      {"bash", "--norc", "-c",
       bash_completion() + "\nCOMP_WORDS=(dtrun" + words + "); COMP_CWORD=" +
           std::to_string(line.size()) + "; _dtrun; printf '%s\\n' \"${COMPREPLY[@]}\""},
      options);
  EXPECT_EQ(result.err, "") << words;
  std::vector<std::string> lines = result.sorted_lines();
  if (lines == std::vector<std::string>{""}) lines.clear();
  return lines;
}

TEST(Completion, OffersOptionsTheirWordsAndFiles) {
  EXPECT_THAT(offered({"--nproc"}), ElementsAre("--nproc_per_node="));
  EXPECT_THAT(offered({"--nproc-"}), ElementsAre("--nproc-per-node="));
  EXPECT_THAT(offered({"-v", "--stand"}), ElementsAre("--standalone"));
  EXPECT_THAT(offered({"--nproc_per_node", "=", "g"}), ElementsAre("gpu"));
  EXPECT_THAT(offered({"--nproc-per-node", "="}), ElementsAre("auto", "cpu", "gpu"));
  EXPECT_THAT(offered({"--nproc_per_node", "a"}), ElementsAre("auto"));
  EXPECT_THAT(offered({"--role", "d"}), IsEmpty());
  EXPECT_THAT(offered({"--log_dir", "=", "et"}), ElementsAre("etc"));
  EXPECT_THAT(offered({"--config", "=", "etc/passw"}), Contains("etc/passwd"));
  EXPECT_THAT(offered({"--role", "a", "tru"}), Contains("true"));
}

TEST(Completion, OffersNoOptionsAfterTheProgram) {
  EXPECT_THAT(offered({"--rdzv_endpoint", "=", "h", ":", "1", "true", "--npro"}), IsEmpty());
  EXPECT_THAT(offered({"--rdzv_endpoint", "h", ":", "1", "--npro"}),
              ElementsAre("--nproc_per_node="));
  EXPECT_THAT(offered({"true", "--nproc"}), IsEmpty());
  EXPECT_THAT(offered({"--", "--nproc"}), Not(Contains("--nproc_per_node=")));
  EXPECT_THAT(offered({"true", "etc/passw"}), Contains("etc/passwd"));
}

TEST(Completion, IsAlsoOfALinkThatIsCalledTorchrunAndOfNoOther) {
  const std::string folder = testing::TempDir() + "/dtrun_links_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file("/bin/true", folder + "/dtrun");
  const auto completed = [&] {
    testing_support::CommandOptions options;
    options.environment["PATH"] = folder;
    return testing_support::run_command(
               {"/bin/bash", "--norc", "-c", bash_completion() + "\ncomplete -p"}, options)
        .sorted_lines();
  };
  const std::string own = "complete -F _dtrun dtrun", torchs = "complete -F _dtrun torchrun";
  EXPECT_THAT(completed(), ElementsAre(own));
  std::filesystem::create_symlink("dtrun", folder + "/torchrun");
  EXPECT_THAT(completed(), ElementsAre(own, torchs));
  std::filesystem::remove(folder + "/torchrun");
  std::filesystem::copy_file("/bin/true", folder + "/torchrun");
  EXPECT_THAT(completed(), ElementsAre(own));
  std::filesystem::remove_all(folder);
}

TEST(ManualPage, IsReadWithoutAWarning) {
  const auto groff = testing_support::run_command({"sh", "-c", "command -v groff"});
  if (groff.exit_code != 0) GTEST_SKIP() << "no groff here";
  const std::string path = testing::TempDir() + "/dtrun_" + std::to_string(::getpid()) + ".1";
  std::ofstream(path) << manual_page();
  const auto result = testing_support::run_command({"groff", "-man", "-ww", "-Tutf8", "-z", path});
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.exit_code, 0);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace dtrun::launcher
