#include "engines/node_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::size_t kMostNames = 1'000'000;
constexpr std::size_t kMostTextBytes = 1 << 20;
constexpr std::size_t kMostDigits = 9;

Error list_error(std::string_view text, const std::string& why) {
  return Error(ErrorCode::kUsage,
               fmt::format("'{}' is no list of nodes as Slurm writes them", text.substr(0, 200)),
               why, "it looks like node[1-3,07-09],other");
}

// The first comma outside of brackets, or the end.
std::size_t end_of_part(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (text[i] == ',' && depth <= 0) return i;
  }
  return text.size();
}

struct Numbers {
  long first = 0;
  long last = 0;
  std::size_t width = 0;  // "07": names keep their zeros
};

long parse_number(std::string_view digits, std::string_view whole) {
  long number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0 ||
      digits.size() > kMostDigits)
    throw list_error(whole, fmt::format("'{}' is no number", digits.substr(0, 40)));
  return number;
}

std::vector<Numbers> parse_ranges(std::string_view inside, std::string_view whole) {
  std::vector<Numbers> ranges;
  for (const std::string_view part : base::split(inside, ',')) {
    const auto dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    Numbers range;
    range.first = parse_number(first, whole);
    range.last =
        dash == std::string_view::npos ? range.first : parse_number(part.substr(dash + 1), whole);
    range.width = first.size();
    if (range.last < range.first) throw list_error(whole, "a range ends before it begins");
    ranges.push_back(range);
  }
  return ranges;
}

// Every name so far, continued by every number.
std::vector<std::string> continued(const std::vector<std::string>& names,
                                   const std::vector<Numbers>& ranges, std::string_view whole) {
  std::size_t count = 0;
  for (const Numbers& range : ranges)
    count += static_cast<std::size_t>(range.last - range.first) + 1;
  if (count > kMostNames || count * names.size() > kMostNames)
    throw list_error(whole, fmt::format("it has more than {} names", kMostNames));
  std::vector<std::string> result;
  result.reserve(count * names.size());
  for (const std::string& name : names)
    for (const Numbers& range : ranges)
      for (long number = range.first; number <= range.last; ++number)
        result.push_back(fmt::format("{}{:0{}}", name, number, range.width));
  return result;
}

std::vector<std::string> expand_part(std::string_view part, std::string_view whole) {
  if (part.empty()) throw list_error(whole, "a name is empty");
  std::vector<std::string> names{""};
  while (!part.empty()) {
    const auto open = part.find('[');
    for (std::string& name : names) name += part.substr(0, open);
    if (part.substr(0, open).find(']') != std::string_view::npos)
      throw list_error(whole, "a ']' closes nothing");
    if (open == std::string_view::npos) break;
    const auto close = part.find(']', open);
    if (close == std::string_view::npos) throw list_error(whole, "a '[' is not closed");
    names = continued(names, parse_ranges(part.substr(open + 1, close - open - 1), whole), whole);
    part.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view text) {
  if (text.size() > kMostTextBytes) throw list_error(text, "it is longer than a megabyte");
  std::vector<std::string> names;
  std::string_view left = text;
  while (true) {
    const std::size_t end = end_of_part(left);
    std::vector<std::string> part = expand_part(left.substr(0, end), text);
    if (names.size() + part.size() > kMostNames)
      throw list_error(text, fmt::format("it has more than {} names", kMostNames));
    std::move(part.begin(), part.end(), std::back_inserter(names));
    if (end == left.size()) return names;
    left.remove_prefix(end + 1);
  }
}

std::vector<int> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string_view part : base::split(text, ',')) {
    const auto times = part.find("(x");
    const long count = parse_number(part.substr(0, times), text);
    long repeats = 1;
    if (times != std::string_view::npos) {
      if (part.back() != ')') throw list_error(text, "a '(' is not closed");
      repeats = parse_number(part.substr(times + 2, part.size() - times - 3), text);
    }
    if (counts.size() + static_cast<std::size_t>(repeats) > kMostNames)
      throw list_error(text, fmt::format("it has more than {} nodes", kMostNames));
    counts.insert(counts.end(), static_cast<std::size_t>(repeats), static_cast<int>(count));
  }
  return counts;
}

}  // namespace dtrun::launcher
