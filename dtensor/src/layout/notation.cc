#include "dtrun/dtensor/layout/notation.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/sharding_spec.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

[[noreturn]] void refuse_text(std::string_view text, std::string why) {
  throw Error(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is no layout",
              std::move(why),
              "an entry per mesh axis: [S(0), R, P(sum)], S(0)[1]S(0)[0]; or ColossalAI's, one per "
              "tensor dim: [S01, R], {0: [0, 1]}");
}

std::string without_blanks(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (std::isspace(static_cast<unsigned char>(letter)) == 0) result += letter;
  }
  return result;
}

/// Of a text such as "PS(1)[1]S(1)[0]R", an entry for each placement.
std::vector<std::string_view> entries_of_run(std::string_view text) {
  std::vector<std::string_view> entries;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (depth == 0 && i > start && letter >= 'A' && letter <= 'Z') {
      entries.push_back(text.substr(start, i - start));
      start = i;
    }
    if (letter == '(' || letter == '[') ++depth;
    if (letter == ')' || letter == ']') --depth;
  }
  entries.push_back(text.substr(start));
  return entries;
}

/// Between the brackets, if there are any.
std::string_view inside(std::string_view text) {
  constexpr std::string_view kOpen = "[{(", kClose = "]})";
  if (text.size() < 2) return text;
  const std::size_t kind = kOpen.find(text.front());
  if (kind == std::string_view::npos || text.back() != kClose[kind]) return text;
  return text.substr(1, text.size() - 2);
}

/// At the commas that stand in no brackets.
std::vector<std::string_view> entries_of(std::string_view text) {
  std::vector<std::string_view> entries;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ')' || text[i] == ']' || text[i] == '}') --depth;
    if (text[i] != ',' || depth > 0) continue;
    entries.push_back(text.substr(start, i - start));
    start = i + 1;
  }
  entries.push_back(text.substr(start));
  if (entries.back().empty()) entries.pop_back();
  return entries;
}

/// "S01": the axes of one dim.
bool is_dim_entry(std::string_view entry) {
  return entry.size() > 1 && entry[0] == 'S' &&
         std::ranges::all_of(entry.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

/// "S(0,sizes=[3,0,5])" and "S(0,{3,0,5})" become "S(0:3,0,5)".
void shorten_sizes(std::string& text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos || text.find(':') < comma) return;
  text[comma] = ':';
  if (const std::size_t name = text.find("sizes="); name != std::string::npos) text.erase(name, 6);
  std::erase_if(text, [](char c) { return c == '{' || c == '}' || c == '[' || c == ']'; });
}

/// Of the long names the short ones.
Placement placement_of(std::string_view whole, std::string_view entry) {
  std::string text(entry);
  const std::pair<std::string_view, std::string_view> names[] = {
      {"Replicate()", "R"},    {"Shard(dim=", "S("}, {"Shard(", "S("},
      {"Partial()", "P(sum)"}, {"Partial(", "P("},   {"P()", "P(sum)"}};
  for (const auto& [name, brief] : names) {
    if (!text.starts_with(name)) continue;
    text = std::string(brief) + text.substr(name.size());
    break;
  }
  if (text == "P") text = "P(sum)";
  if (text.starts_with("S(")) shorten_sizes(text);
  try {
    return Placement::parse(text);
  } catch (const Error&) {
    refuse_text(whole, "'" + std::string(entry) + "' is no placement");
  }
}

int number_at(std::string_view whole, std::string_view text) {
  int number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    refuse_text(whole, "'" + std::string(text) + "' is no number");
  }
  return number;
}

/// "{0:[1,0],1:[2]}".
ShardOrder order_in(std::string_view whole, std::string_view text) {
  ShardOrder order;
  for (const std::string_view entry : entries_of(inside(text))) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) refuse_text(whole, "its order has no dim before a ':'");
    std::vector<int>& axes = order[number_at(whole, entry.substr(0, colon))];
    for (const std::string_view axis : entries_of(inside(entry.substr(colon + 1)))) {
      axes.push_back(number_at(whole, axis));
    }
  }
  return order;
}

/// Takes the places off the entries of PyTorch's newest text, "S(0)[1]": of the axes that cut a dim
/// the one with [0] cuts first. @return for each dim its axes
ShardOrder order_taken_off(std::string_view whole, std::vector<std::string_view>& entries,
                           std::size_t dims) {
  std::map<int, std::map<int, int>> axis_at;
  for (std::size_t axis = 0; axis < entries.size(); ++axis) {
    std::string_view& entry = entries[axis];
    const std::size_t open = entry.find(")[");
    if (open == std::string_view::npos || entry.back() != ']') continue;
    const int place = number_at(whole, entry.substr(open + 2, entry.size() - open - 3));
    entry = entry.substr(0, open + 1);
    const Placement placement = placement_of(whole, entry);
    if (!placement.is_shard()) refuse_text(whole, "only a Shard has a place in an order");
    const int dim =
        placement.dim() < 0 ? placement.dim() + static_cast<int>(dims) : placement.dim();
    if (!axis_at[dim].emplace(place, static_cast<int>(axis)).second)
      refuse_text(
          whole, "two axes have place " + std::to_string(place) + " of dim " + std::to_string(dim));
  }
  ShardOrder order;
  for (const auto& [dim, axes] : axis_at) {
    // Of n different places the least is 0 and the greatest n - 1.
    if (axes.begin()->first != 0 || axes.rbegin()->first + 1 != static_cast<int>(axes.size()))
      refuse_text(whole, "the places of dim " + std::to_string(dim) + " are not 0, 1, ...");
    for (const auto& [place, axis] : axes) order[dim].push_back(axis);
  }
  return order;
}

/// "{0:[0,1]}": ColossalAI's partition, the axes of each dim that is cut.
bool is_partition(const std::vector<std::string_view>& entries) {
  return !entries.empty() && std::ranges::all_of(entries, [](std::string_view entry) {
    const std::size_t colon = entry.find(':');
    return colon != std::string_view::npos && entry.find_first_not_of("-0123456789") == colon;
  });
}

}  // namespace

Layout parse_layout(std::string_view text, const Shape& global_shape,
                    const std::vector<int>& mesh_shape) {
  const std::string packed = without_blanks(text);
  std::string_view rest = packed;
  ShardOrder order;
  if (const std::size_t at = rest.find("order{"); at != std::string_view::npos) {
    order = order_in(text, rest.substr(at + 5));
    rest = rest.substr(0, at);
  }
  std::vector<std::string_view> entries = entries_of(inside(rest));
  if (entries.size() == 1 && mesh_shape.size() > 1) {
    std::vector<std::string_view> run = entries_of_run(entries.front());
    if (run.size() == mesh_shape.size()) entries = std::move(run);
  }
  if (std::ranges::any_of(entries, is_dim_entry)) {
    return ShardingSpec::parse("[" + std::string(inside(rest)) + "]")
        .layout(global_shape, mesh_shape);
  }
  if (is_partition(entries)) {
    return ShardingSpec(static_cast<int>(global_shape.size()), order_in(text, rest))
        .layout(global_shape, mesh_shape);
  }
  // All whole reads the same in both.
  const bool is_whole = std::ranges::all_of(entries, [](auto entry) { return entry == "R"; });
  if (is_whole && entries.size() == global_shape.size()) return Layout::whole(mesh_shape.size());
  if (entries.size() != mesh_shape.size()) {
    refuse_text(text, "it has " + std::to_string(entries.size()) + " entries for a mesh of " +
                          std::to_string(mesh_shape.size()) + " axes");
  }
  if (ShardOrder places = order_taken_off(text, entries, global_shape.size()); !places.empty()) {
    if (!order.empty()) refuse_text(text, "it has an order, and places in an order");
    order = std::move(places);
  }
  Placements placements;
  for (const std::string_view entry : entries) placements.push_back(placement_of(text, entry));
  return make_layout(global_shape, mesh_shape, std::move(placements), order);
}

std::string dim_partition(const Layout& layout, std::size_t dims) {
  std::string text;
  for (const auto& [dim, axes] : ShardingSpec::of(layout, dims).dim_partition_dict()) {
    std::string list;
    for (const int axis : axes) list += (list.empty() ? "" : ", ") + std::to_string(axis);
    text += (text.empty() ? "" : ", ") + std::to_string(dim) + ": [" + list + "]";
  }
  return "{" + text + "}";
}

std::string sharding_sequence(const Layout& layout, std::size_t dims) {
  return ShardingSpec::of(layout, dims).to_string();
}

}  // namespace dtrun::dtensor
