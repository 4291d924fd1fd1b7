#include "options/line_tag.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <ctime>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

bool is_name_byte(char byte) {
  return byte == '_' || std::isalnum(static_cast<unsigned char>(byte)) != 0;
}

struct MacroAt {
  std::string_view name;   ///< empty: there is none
  std::size_t length = 0;  ///< with '$' and braces
};

// Reads the macro at the beginning of the text, which is a '$'.
MacroAt find_macro(std::string_view text) {
  const bool braces = text.size() > 1 && text[1] == '{';
  const std::size_t begin = braces ? 2 : 1;
  std::size_t end = begin;
  while (end < text.size() && is_name_byte(text[end])) ++end;
  if (braces && (end == text.size() || text[end] != '}')) return {};
  return {text.substr(begin, end - begin), braces ? end + 1 : end};
}

}  // namespace

std::string iso_time(std::chrono::system_clock::time_point time) {
  const auto since_epoch = duration_cast<milliseconds>(time.time_since_epoch());
  const std::time_t seconds = static_cast<std::time_t>(since_epoch.count() / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     since_epoch.count() % 1000);
}

const std::vector<std::pair<std::string_view, TagTemplate::Macro>>& TagTemplate::macros() {
  static const std::vector<std::pair<std::string_view, Macro>> kMacros = {
      {"node", Macro::kNode},      {"host", Macro::kHost},
      {"rank", Macro::kRank},      {"local_rank", Macro::kLocalRank},
      {"role", Macro::kRole},      {"role_name", Macro::kRole},
      {"stream", Macro::kStream},  {"time", Macro::kTime},
      {"elapsed", Macro::kElapsed}};
  return kMacros;
}

void TagTemplate::add_text(std::string_view text) {
  if (parts_.empty() || parts_.back().macro != Macro::kText) parts_.push_back({Macro::kText, ""});
  parts_.back().text += text;
}

bool TagTemplate::add_macro(std::string_view name) {
  const auto found = std::find_if(macros().begin(), macros().end(),
                                  [&](const auto& macro) { return macro.first == name; });
  if (found == macros().end()) return false;
  parts_.push_back({found->second, ""});
  return true;
}

TagTemplate TagTemplate::parse(std::string_view text, Unknown unknown) {
  TagTemplate result;
  while (!text.empty()) {
    const auto dollar = text.find('$');
    if (dollar != 0) {
      result.add_text(text.substr(0, dollar));
      text.remove_prefix(std::min(dollar, text.size()));
    } else if (text.size() > 1 && text[1] == '$') {
      result.add_text("$");
      text.remove_prefix(2);
    } else if (const MacroAt macro = find_macro(text); result.add_macro(macro.name)) {
      text.remove_prefix(macro.length);
    } else if (unknown == Unknown::kLeft) {
      result.add_text("$");
      text.remove_prefix(1);
    } else {
      throw base::Error(base::ErrorCode::kUsage,
                        fmt::format("has '{}', which is none of ${{node}}, ${{host}}, ${{rank}}, "
                                    "${{local_rank}}, ${{role}}, ${{stream}}, ${{time}}, "
                                    "${{elapsed}}; $$ is a dollar",
                                    text.substr(0, std::max<std::size_t>(macro.length, 1))));
    }
  }
  return result;
}

bool TagTemplate::has_time() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.macro == Macro::kTime || part.macro == Macro::kElapsed;
  });
}

std::string TagTemplate::render(const LineOrigin& origin, const LineTime& time) const {
  std::string result;
  for (const Part& part : parts_) {
    switch (part.macro) {
      case Macro::kText:
        result += part.text;
        break;
      case Macro::kNode:
        result += std::to_string(origin.node_rank);
        break;
      case Macro::kHost:
        result += origin.host;
        break;
      case Macro::kRank:
        result += origin.rank;
        break;
      case Macro::kLocalRank:
        result += origin.local_rank;
        break;
      case Macro::kRole:
        result += origin.role;
        break;
      case Macro::kStream:
        result += name_of(origin.stream);
        break;
      case Macro::kTime:
        result += iso_time(time.time);
        break;
      case Macro::kElapsed:
        result += fmt::format("{:.3f}", std::chrono::duration<double>(time.elapsed).count());
        break;
    }
  }
  return result;
}

std::string in_colour_of_rank(const std::string& tag, int rank) {
  static constexpr int kColours[] = {36, 32, 33, 35, 34, 96, 92, 93};
  const std::size_t visible = tag.find_last_not_of(' ') + 1;
  if (visible == 0) return tag;
  return fmt::format("\x1b[{}m{}\x1b[0m{}", kColours[static_cast<std::size_t>(rank) % 8],
                     tag.substr(0, visible), tag.substr(visible));
}

std::string_view TaggedLines::add(std::string_view bytes, std::string_view tag) {
  tagged_.clear();
  tagged_.reserve(bytes.size() + bytes.size() / 8 + tag.size());
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    const std::string_view line =
        newline == std::string_view::npos ? bytes : bytes.substr(0, newline + 1);
    add_line(line, tag);
    in_line_ = newline == std::string_view::npos;
    bytes.remove_prefix(line.size());
  }
  return tagged_;
}

void TaggedLines::add_line(std::string_view line, std::string_view tag) {
  if (!in_line_) {
    tagged_ += tag;
    returned_ = false;
  }
  while (terminal_ && !line.empty()) {
    if (returned_ && line[0] != '\r' && line[0] != '\n') tagged_ += tag;
    const auto back = line.find('\r');
    returned_ = back != line.npos;
    const std::string_view part = line.substr(0, returned_ ? back + 1 : back);
    tagged_ += part;
    line.remove_prefix(part.size());
  }
  tagged_ += line;
}

}  // namespace dtrun::launcher
