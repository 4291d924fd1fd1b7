#include "options/help_text.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "options/option_names.h"
#include "options/usage_text.h"

namespace dtrun::launcher {
namespace {

constexpr std::size_t kWidth = 92, kNameColumn = 2, kTextColumn = 34;

// What stands together on a line: a word, or, of a long list, as much as has one comma.
std::string_view next_piece(std::string_view text) {
  constexpr std::size_t kLongWord = 40;
  const std::string_view word = text.substr(0, text.find(' '));
  const auto comma = word.size() > kLongWord ? word.find(',') : std::string_view::npos;
  return comma == std::string_view::npos ? word : word.substr(0, comma + 1);
}

// The pieces of the text in lines that begin at a column; the first begins where `at` says.
std::string wrapped(std::string_view text, std::size_t column, std::size_t at) {
  std::string result;
  std::size_t gap = 0;
  while (!text.empty()) {
    const std::string_view piece = next_piece(text);
    text.remove_prefix(piece.size());
    if (at > column && at + gap + piece.size() > kWidth) {
      result += "\n" + std::string(column, ' ');
      at = column;
    } else {
      result.append(gap, ' ');
      at += gap;
    }
    result += piece;
    at += piece.size();
    gap = text.starts_with(' ') ? 1 : 0;
    text.remove_prefix(gap);
  }
  return result + "\n";
}

std::string paragraph(std::string_view text) {
  return wrapped(text, 0, 0);
}

// "-r, --redirects 0-3|RANK:0-3,..."
std::string name_and_value(const OptionRow& row) {
  std::string result = row.letter != 0 ? fmt::format("-{}, ", row.letter) : "    ";
  result += spelling_of(row);
  const ValueDemand demand = demand_of(row);
  if (demand == ValueDemand::kNeeded) result += fmt::format(" {}", row.value);
  if (demand == ValueDemand::kOptional)
    result += fmt::format("[={}", std::string_view(row.value).substr(1));
  return result;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return paragraph(app->get_description());
  }

  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    std::string result = fmt::format(
        "\nUsage: {} [OPTIONS] PROGRAM [ARGUMENTS...] [: [OPTIONS] PROGRAM [ARGUMENTS...]]...\n\n",
        name);
    for (const UsageExample& example : usage_examples())
      result += fmt::format("  {}\n      {}\n", example.command, example.meaning);
    return result + "\n";
  }

  std::string make_group(std::string group, bool /*is_positional*/,
                         std::vector<const CLI::Option*> options) const override {
    std::string result = fmt::format("{}:\n", group);
    for (const CLI::Option* option : options) result += make_option(option, false);
    return result;
  }

  std::string make_option(const CLI::Option* option, bool /*is_positional*/) const override {
    const OptionRow& row = *find_exactly(option->get_lnames().front());
    const std::string name = name_and_value(row);
    std::string result = std::string(kNameColumn, ' ') + name;
    if (result.size() + 2 > kTextColumn) {
      result += "\n" + std::string(kTextColumn, ' ');
    } else {
      result.resize(kTextColumn, ' ');
    }
    return result + wrapped(text_of(row), kTextColumn, kTextColumn);
  }

  std::string make_footer(const CLI::App* /*app*/) const override {
    std::string result;
    for (const std::string_view note : usage_notes())
      result += (result.empty() ? "" : "\n") + paragraph(note);
    return result;
  }
};

}  // namespace

std::string help_text() {
  CLI::App app{std::string(usage_intro())};
  app.name("dtrun");
  app.set_help_flag();
  app.formatter(std::make_shared<HelpFormatter>());
  for (const OptionRow& row : option_table()) {
    if (row.group == OptionGroup::kHidden) continue;
    app.add_option(spelling_of(row))->group(std::string(heading_of(row.group)));
  }
  return app.help();
}

std::string help_text(const OptionRow& row) {
  std::string result = name_and_value(row).substr(row.letter != 0 ? 0 : 4) + "\n";
  result += "  " + wrapped(row.help, 2, 2);
  if (row.otherwise != nullptr) result += fmt::format("  default: {}\n", row.otherwise);
  if (row.reach != OptionReach::kCommandLineOnly)
    result += fmt::format("  environment: {}, {}\n", variable_of(row, "PET_"),
                          variable_of(row, "DTRUN_"));
  if (is_torchruns(row)) result += "  torchrun has it, too\n";
  return result;
}

}  // namespace dtrun::launcher
