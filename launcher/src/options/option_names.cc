#include "options/option_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "dtrun/base/split.h"
#include "text/spelling.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::string with_underscores(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

bool is_a_word(std::string_view text) {
  return !text.empty() && std::islower(static_cast<unsigned char>(text.front())) != 0 &&
         std::ranges::all_of(text, [](unsigned char letter) {
           return std::islower(letter) != 0 || std::isdigit(letter) != 0 || letter == '-';
         });
}

std::vector<const OptionRow*> rows_that_begin_with(std::string_view name) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : option_table())
    if (!name.empty() && std::string_view(row.name).starts_with(name)) rows.push_back(&row);
  return rows;
}

}  // namespace

std::string spelling_of(const OptionRow& row) {
  return "--" + with_underscores(row.name);
}

std::string variable_of(const OptionRow& row, std::string_view prefix) {
  std::string name = with_underscores(row.name);
  std::transform(name.begin(), name.end(), name.begin(), ::toupper);
  return std::string(prefix) + name;
}

std::vector<std::string_view> choices_of(const OptionRow& row) {
  std::vector<std::string_view> result;
  if (row.value == nullptr) return result;
  std::string_view words = row.value;
  if (words.starts_with('[')) words = words.substr(1, words.size() - 2);
  for (const std::string_view word : base::split(words, '|'))
    if (is_a_word(word)) result.push_back(word);
  return result;
}

std::string text_of(const OptionRow& row) {
  return row.otherwise == nullptr ? row.help
                                  : fmt::format("{} (default: {})", row.help, row.otherwise);
}

ValueDemand demand_of(const OptionRow& row) {
  if (row.value == nullptr) return ValueDemand::kNone;
  return row.value[0] == '[' ? ValueDemand::kOptional : ValueDemand::kNeeded;
}

const OptionRow* find_exactly(std::string_view name) {
  const std::string written = with_dashes(name);
  const auto found = std::ranges::find(option_table(), written, &OptionRow::name);
  return found == option_table().end() ? nullptr : &*found;
}

const OptionRow& find_option(const std::string& word, std::string_view name) {
  if (const OptionRow* exact = find_exactly(name)) return *exact;
  const std::vector<const OptionRow*> rows = rows_that_begin_with(with_dashes(name));
  if (rows.empty()) throw unknown_option(word, name);
  // torchrun's options go first: a prefix that torchrun understands means the same here, whatever
  // other options dtrun has.
  const auto is_one_of_torchruns = [](const OptionRow* row) { return is_torchruns(*row); };
  if (std::ranges::count_if(rows, is_one_of_torchruns) == 1)
    return **std::ranges::find_if(rows, is_one_of_torchruns);
  if (rows.size() == 1) return *rows.front();
  std::string candidates;
  for (const OptionRow* row : rows)
    candidates += (candidates.empty() ? "" : ", ") + spelling_of(*row);
  throw Error(ErrorCode::kUsage, fmt::format("option {} is ambiguous", word),
              fmt::format("it could be {}", candidates), "write more of its name");
}

Error unknown_option(const std::string& word, std::string_view name) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : option_table())
    if (row.group != OptionGroup::kHidden) names.emplace_back(row.name);
  const std::string_view nearest = nearest_name(with_dashes(name), names);
  return Error(ErrorCode::kUsage, fmt::format("unknown option {}", word), "",
               nearest.empty() ? "dtrun --help lists the options; the program comes after them"
                               : fmt::format("did you mean --{}?", with_underscores(nearest)));
}

const OptionRow& find_letter(const std::string& word, char letter) {
  for (const OptionRow& row : option_table())
    if (row.letter != 0 && row.letter == letter) return row;
  throw unknown_option(word, std::string(1, letter));
}

}  // namespace dtrun::launcher
