#include "sources/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "options/config_error.h"
#include "options/option_names.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;
using base::trimmed;

constexpr std::string_view kBlanks = " \t";

bool is_control(unsigned char letter) {
  return letter < ' ' && letter != '\t';
}

std::optional<char> read_byte(std::string_view digits) {
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) return std::nullopt;
  return static_cast<char>(byte);
}

// One line of the file; throws errors that begin with its place.
class ConfigLine {
 public:
  ConfigLine(std::string_view text, std::string place) : text_(text), place_(std::move(place)) {}

  void add_to(CommandLine& line, CommandLine& file) const {
    if (std::ranges::any_of(text_, is_control))
      fail("has a control character", "this is no text file, or no line of one");
    const std::string_view text = trimmed(text_);
    if (text.empty() || text.front() == '#') return;
    if (text.front() == '[') fail("is a section", "dtrun's file has none: remove the line");
    const auto equals = text.find('=');
    if (equals == std::string_view::npos)
      fail("is not NAME = VALUE", "an option without a value is written: verbose = true");
    const OptionRow& row = find_row(std::string(trimmed(text.substr(0, equals))));
    const std::string origin = fmt::format("{}: {}", place_, spelling_of(row).substr(2));
    const std::string value = read_value(trimmed(text.substr(equals + 1)));
    const auto [earlier, is_new] = file.values.try_emplace(row.name, GivenValue{value, origin});
    if (!is_new)
      fail(fmt::format("repeats {}", spelling_of(row).substr(2)),
           fmt::format("it stands at {} already: remove one", earlier->second.origin));
    const auto given = meaning_of(row, value);
    if (line.is_settled(row.name)) return;
    (given ? line.values : line.refused)[row.name] = {given.value_or("0"), origin, Origin::kFile};
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const {
    throw ConfigError(Error(ErrorCode::kUsage, fmt::format("{} {}", place_, what), "", remedy));
  }

  const OptionRow& find_row(const std::string& name) const {
    const OptionRow* row = find_exactly(name);
    if (row == nullptr || row->group == OptionGroup::kHidden) {
      const Error unknown = unknown_option(name, name);
      fail(fmt::format("names an unknown option, '{}'", name), unknown.remedy());
    }
    if (row->reach != OptionReach::kEverywhere)
      fail(fmt::format("sets {}", name),
           fmt::format("{} is for the command line", spelling_of(*row)));
    return *row;
  }

  std::string read_value(std::string_view text) const {
    if (!text.empty() && (text.front() == '"' || text.front() == '\'')) return read_quoted(text);
    const auto is_comment = [&](std::size_t at) {
      return text[at] == '#' && (at == 0 || kBlanks.find(text[at - 1]) != std::string_view::npos);
    };
    std::size_t size = 0;
    while (size < text.size() && !is_comment(size)) ++size;
    text = trimmed(text.substr(0, size));
    if (text.empty()) fail("has no value after '='", "\"\" is an empty one");
    return std::string(text);
  }

  // What stands at `at`, behind a backslash; moves it to the last letter read.
  char read_escape(std::string_view text, std::size_t& at) const {
    constexpr std::string_view kCodes = "\"\\tn", kMeanings = "\"\\\t\n";
    const auto code = at < text.size() ? kCodes.find(text[at]) : std::string_view::npos;
    if (code != std::string_view::npos) return kMeanings[code];
    const bool is_byte = at < text.size() && text[at] == 'x';
    const auto byte = is_byte ? read_byte(text.substr(at + 1, 2)) : std::nullopt;
    if (!byte)
      fail("has an unknown escape", "\\\" \\\\ \\t \\n \\x1b are known; in '...' nothing is one");
    at += 2;
    return *byte;
  }

  // "..." with \" \\ \t \n \x1b in it; '...' as it stands.
  std::string read_quoted(std::string_view text) const {
    const char quote = text.front();
    std::string result;
    std::size_t at = 1;
    for (; at < text.size() && text[at] != quote; ++at) {
      const bool plain = quote == '\'' || text[at] != '\\';
      result += plain ? text[at] : read_escape(text, ++at);
    }
    if (at >= text.size()) fail("has a quote that does not end", "end it in the same line");
    const std::string_view rest = trimmed(text.substr(at + 1));
    if (!rest.empty() && rest.front() != '#')
      fail(fmt::format("has '{}' after the value", rest), "put quotes around the whole value");
    return result;
  }

  // nullopt: the file says that the option is off.
  std::optional<std::string> meaning_of(const OptionRow& row, const std::string& value) const {
    if (demand_of(row) == ValueDemand::kNeeded) return value;
    if (value == "true" || value == "1") return "1";
    if (value == "false" || value == "0") return std::nullopt;
    fail(fmt::format("sets {} to '{}'", spelling_of(row).substr(2), value),
         "it has no value: write true or false");
  }

  std::string_view text_;
  std::string place_;
};

}  // namespace

void add_config_text(std::string_view text, const std::string& name, CommandLine& line,
                     Reading reading) {
  CommandLine file;
  // Some editors begin every file of UTF-8 so.
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    std::string_view one = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (one.ends_with('\r')) one.remove_suffix(1);
    read_part(reading, [&, one, number] {
      ConfigLine(one, fmt::format("{}:{}", name, number)).add_to(line, file);
    });
  }
}

std::string written_in_config(std::string_view value) {
  const bool bare = !value.empty() && trimmed(value) == value && value.front() != '"' &&
                    value.front() != '\'' && value.find('#') == std::string_view::npos &&
                    std::ranges::none_of(value, is_control);
  if (bare) return std::string(value);
  std::string result = "\"";
  for (const char letter : value) {
    if (letter == '"' || letter == '\\') result += '\\';
    if (letter == '\n') {
      result += "\\n";
    } else if (is_control(static_cast<unsigned char>(letter))) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(letter));
    } else {
      result += letter;
    }
  }
  return result + '"';
}

}  // namespace dtrun::launcher
