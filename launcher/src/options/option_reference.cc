#include "options/option_reference.h"

#include <fmt/core.h>

#include "options/option_names.h"
#include "options/usage_text.h"

namespace dtrun::launcher {
namespace {

bool is_told(const OptionRow& row) {
  return row.group != OptionGroup::kHidden;
}

// --- man

// For roff: a '-' to be typed, a backslash, a '.' that begins no request, and where a long list may
// be broken.
std::string roff(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (result.empty() && (letter == '.' || letter == '\'')) result += "\\&";
    if (letter == '-') {
      result += "\\-";
    } else if (letter == '\\') {
      result += "\\e";
    } else {
      result += letter;
      if (letter == ',') result += "\\:";
    }
  }
  return result;
}

std::string roff_option(const OptionRow& row) {
  std::string name;
  if (row.letter != 0) name = fmt::format("\\fB\\-{}\\fR, ", row.letter);
  name += fmt::format("\\fB{}\\fR", roff(spelling_of(row)));
  if (demand_of(row) == ValueDemand::kNeeded) name += fmt::format(" \\fI{}\\fR", roff(row.value));
  if (demand_of(row) == ValueDemand::kOptional)
    name +=
        fmt::format("[=\\fI{}\\fR]",
                    roff(std::string_view(row.value).substr(1, std::string(row.value).size() - 2)));
  return fmt::format(".TP\n{}\n{}\n", name, roff(text_of(row)));
}

std::string roff_options() {
  std::string result = ".SH OPTIONS\n";
  const OptionRow* last = nullptr;
  for (const OptionRow& row : option_table()) {
    if (!is_told(row)) continue;
    if (last == nullptr || last->group != row.group)
      result += fmt::format(".SS {}\n", roff(heading_of(row.group)));
    result += roff_option(row);
    last = &row;
  }
  return result;
}

// --- Markdown

// Within a cell of a table.
std::string cell(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '|') result += '\\';
    result += letter;
  }
  return result;
}

std::string markdown_option(const OptionRow& row) {
  std::string name = spelling_of(row);
  if (demand_of(row) == ValueDemand::kNeeded) name += fmt::format(" {}", row.value);
  if (demand_of(row) == ValueDemand::kOptional)
    name += fmt::format("[={}", std::string_view(row.value).substr(1));
  const std::string letter = row.letter != 0 ? fmt::format("`-{}`, ", row.letter) : "";
  return fmt::format("| {}`{}` | {} | {} | {} |\n", letter, cell(name), cell(row.help),
                     row.otherwise != nullptr ? fmt::format("`{}`", row.otherwise) : "",
                     is_torchruns(row) ? "yes" : "");
}

}  // namespace

std::string manual_page() {
  // Lines are not justified: with long names in them they cannot be stretched.
  std::string result = ".TH DTRUN 1 \"\" dtrun \"User Commands\"\n.ad l\n.SH NAME\n";
  result += "dtrun \\- start a program once per rank, as torchrun does\n";
  result +=
      ".SH SYNOPSIS\n.B dtrun\n[\\fIOPTIONS\\fR] \\fIPROGRAM\\fR [\\fIARGUMENTS\\fR...] "
      "[: [\\fIOPTIONS\\fR] \\fIPROGRAM\\fR [\\fIARGUMENTS\\fR...]]...\n";
  result += fmt::format(".SH DESCRIPTION\n{}\n", roff(usage_intro()));
  for (const std::string_view note : usage_notes()) result += fmt::format(".PP\n{}\n", roff(note));
  result += ".SH EXAMPLES\n";
  for (const UsageExample& example : usage_examples())
    result += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(example.command), roff(example.meaning));
  result += roff_options();
  result += ".SH EXIT STATUS\n";
  for (const UsageExample& code : exit_codes())
    result += fmt::format(".TP\n{}\n{}\n", roff(code.command), roff(code.meaning));
  // Where cmake/DtrunInstall.cmake puts them.
  result += ".SH SEE ALSO\n";
  for (const char* tool : {"bench", "ckpt", "doctor", "explain", "jobs", "plan", "store"})
    result +=
        fmt::format(".BR dtrun\\-{} (1){}\n", tool, tool == std::string_view("store") ? "" : ",");
  result += ".PP\n";
  result +=
      "Documents named docs/*.md are in share/doc/dtrun, beside the folder bin that dtrun is in.\n";
  return result;
}

std::string option_markdown() {
  std::string result = fmt::format(
      "# The options of dtrun\n\n"
      "Made by `dtrun --reference=markdown`, from the table that also makes the parser, `--help`, "
      "the manual page and\nthe completion of bash (`dtrun --completion=bash`). "
      "[command_line.md](command_line.md) says how they\nare read and where values come from, "
      "[torchrun.md](torchrun.md) how dtrun differs from torchrun.\n\n{}\n\n",
      usage_intro());
  for (const UsageExample& example : usage_examples())
    result += fmt::format("    {}\n        # {}\n", example.command, example.meaning);
  for (const std::string_view note : usage_notes()) result += fmt::format("\n{}\n", note);
  const OptionRow* last = nullptr;
  for (const OptionRow& row : option_table()) {
    if (!is_told(row)) continue;
    if (last == nullptr || last->group != row.group)
      result += fmt::format(
          "\n## {}\n\n| option | what it does | default | torchrun's |\n|---|---|---|---|\n",
          heading_of(row.group));
    result += markdown_option(row);
    last = &row;
  }
  return result;
}

}  // namespace dtrun::launcher
