#include "house/house_rules.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace dtrun::house {
namespace {

constexpr std::size_t kMaxFileLines = 700;
constexpr std::size_t kMaxFunctionLines = 70;
constexpr std::ptrdiff_t kMinPrivateLines = 50;
constexpr std::size_t kMaxCellCharacters = 220;
constexpr std::ptrdiff_t kMaxReadmeLines = 60;

// Who may include whom. "tests" and the umbrella header see everything.
const std::map<std::string, std::set<std::string>>& allowed_includes() {
  static const std::map<std::string, std::set<std::string>> kAllowed = {
      {"base", {"base"}},
      {"rendezvous", {"base", "rendezvous"}},
      {"launcher", {"base", "rendezvous", "launcher"}},
      {"tensor", {"base", "tensor"}},
      {"collectives", {"base", "rendezvous", "tensor", "collectives"}},
      {"dtensor", {"base", "rendezvous", "tensor", "collectives", "dtensor"}},
      {"runtime", {"base", "rendezvous", "tensor", "collectives", "dtensor", "runtime"}},
  };
  return kAllowed;
}

// Of a layer's rooms each may include itself and those before it; what stands in no room, all.
struct Rooms {
  std::string_view layer;
  std::vector<std::string_view> names;

  // Where it stands among them; one more than the last: in none of them.
  std::size_t place_of(std::string_view name) const {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  }
};

const std::vector<Rooms>& layers_with_rooms() {
  static const std::vector<Rooms> kRooms = {
      {"rendezvous", {"wire", "job", "proof", "store", "etcd", "rounds"}},
      {"launcher",
       {"text", "engines", "cpus", "options", "terminal", "plan", "output", "meeting", "sources",
        "ranks", "verdict", "preview", "agent", "hosts"}},
      {"dtensor",
       {"layout", "plan", "mesh", "move", "dispatch", "autograd", "ops", "nn", "optim", "parallel",
        "data", "checkpoint"}},
  };
  return kRooms;
}

std::string first_folder(const std::string& path) {
  return path.substr(0, path.find('/'));
}

bool is_cpp(const std::string& path) {
  for (const char* ending : {".h", ".cc", ".cu", ".cuh"})
    if (path.ends_with(ending)) return true;
  return false;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string at(const SourceFile& file, std::size_t line, const std::string& what) {
  return file.path + ":" + std::to_string(line) + ": " + what;
}

bool has_word(std::string_view text, std::string_view word) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  for (auto found = text.find(word); found != std::string_view::npos;
       found = text.find(word, found + 1)) {
    const bool starts = found == 0 || !is_word(text[found - 1]);
    const bool ends = found + word.size() == text.size() || !is_word(text[found + word.size()]);
    if (starts && ends) return true;
  }
  return false;
}

// Whether the text before a '{' opens a function's body: it has a parameter list and is no type,
// namespace, or initializer.
bool opens_function(std::string_view head) {
  for (const char* word : {"namespace", "class", "struct", "union", "enum"})
    if (has_word(head, word) && head.find('(') == std::string_view::npos) return false;
  const auto close = head.rfind(')');
  if (close == std::string_view::npos) return false;
  return head.substr(0, close).find('=') == std::string_view::npos || has_word(head, "operator");
}

}  // namespace

std::string without_comments_and_strings(std::string_view text) {
  std::string result(text);
  enum class State {
    code,
    line_comment,
    block_comment,
    string,
    character,
    raw
  } state = State::code;
  std::string raw_end;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    switch (state) {
      case State::code:
        if (c == '/' && next == '/') state = State::line_comment;
        if (c == '/' && next == '*') state = State::block_comment;
        if (c == '"' && i > 0 && text[i - 1] == 'R') {
          raw_end = ")" + std::string(text.substr(i + 1, text.find('(', i) - i - 1)) + "\"";
          state = State::raw;
        } else if (c == '"') {
          state = State::string;
        } else if (c == '\'' && !(i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
          state = State::character;
        }
        break;
      case State::line_comment:
        if (c == '\n') state = State::code;
        break;
      case State::block_comment:
        if (c == '/' && text[i - 1] == '*') {
          state = State::code;
          result[i] = ' ';
        }
        break;
      case State::string:
      case State::character: {
        const char quote = state == State::string ? '"' : '\'';
        if (c == '\\') {
          result[i] = ' ';
          if (next != '\n') result[++i] = ' ';
        } else if (c == quote || c == '\n') {
          state = State::code;
        }
        break;
      }
      case State::raw:
        if (text.substr(i, raw_end.size()) == raw_end) {
          i += raw_end.size() - 1;
          state = State::code;
        }
        break;
    }
    if (state != State::code && result[i] != '\n' && result[i] != '"' && result[i] != '\'')
      result[i] = ' ';
  }
  return result;
}

Findings climbing_includes(const SourceFile& file) {
  Findings findings;
  const auto layer = allowed_includes().find(first_folder(file.path));
  if (!is_cpp(file.path) || layer == allowed_includes().end()) return findings;
  const bool umbrella = file.path == "runtime/include/dtrun/dtrun.h";
  const auto lines = lines_of(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view prefix = "#include \"dtrun/";
    if (lines[i].rfind(prefix, 0) != 0) continue;
    const std::string target = lines[i].substr(prefix.size());
    if (target.rfind("dtrun.h", 0) == 0) {
      findings.push_back(at(file, i + 1, "the umbrella header is for users only"));
    } else if (!umbrella && !layer->second.count(first_folder(target))) {
      findings.push_back(
          at(file, i + 1, layer->first + " may not include " + first_folder(target)));
    }
  }
  return findings;
}

namespace {

// The room that an include names, of the layer's own sources or public headers; empty: neither.
std::string included_room(const std::string& line, const std::string& layer) {
  const std::string mine = "#include \"dtrun/" + layer + "/", source = "#include \"";
  if (line.starts_with(mine)) {
    // Public headers that stand in no room may be included from each.
    const std::string header = line.substr(mine.size());
    return header.find('/') == std::string::npos ? "" : first_folder(header);
  }
  if (!line.starts_with(source) || line.starts_with("#include \"dtrun/")) return "";
  return first_folder(line.substr(source.size()));
}

}  // namespace

Findings climbing_rooms(const SourceFile& file) {
  Findings findings;
  for (const Rooms& rooms : layers_with_rooms()) {
    const std::string layer(rooms.layer);
    std::string inside;
    for (const std::string& folder : {layer + "/src/", layer + "/include/dtrun/" + layer + "/"})
      if (file.path.starts_with(folder)) inside = file.path.substr(folder.size());
    if (!is_cpp(file.path) || inside.empty()) continue;
    const std::size_t own = rooms.place_of(first_folder(inside));
    const auto lines = lines_of(file.text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string room = included_room(lines[i], layer);
      if (!room.empty() && room != "generated" && rooms.place_of(room) > own)
        findings.push_back(at(file, i + 1, "may not include what is in " + layer + "'s " + room));
    }
  }
  return findings;
}

namespace {

std::ptrdiff_t lines_in(const SourceFile& file) {
  return std::count(file.text.begin(), file.text.end(), '\n');
}

// What the file names in its #include "..." lines.
std::vector<std::string> included_by(const SourceFile& file) {
  std::vector<std::string> names;
  const std::string prefix = "#include \"";
  for (const std::string& line : lines_of(file.text))
    if (line.starts_with(prefix))
      names.push_back(line.substr(prefix.size(), line.find('"', prefix.size()) - prefix.size()));
  return names;
}

bool may_be_part_of_another(const SourceFile& file) {
  return file.path.ends_with(".h") && file.path.find("/include/") == std::string::npos &&
         file.path.find("/kernels/") == std::string::npos && lines_in(file) < kMinPrivateLines;
}

bool is_named_by(const std::string& path, const std::string& included) {
  return path == included || path.ends_with("/" + included);
}

}  // namespace

Findings parts_of_one_file(const std::vector<SourceFile>& tree) {
  Findings findings;
  std::map<std::string, std::vector<const SourceFile*>> users;  // by the name in the #include
  for (const SourceFile& file : tree)
    if (is_cpp(file.path))
      for (const std::string& name : included_by(file)) users[name].push_back(&file);
  for (const SourceFile& header : tree) {
    if (!may_be_part_of_another(header)) continue;
    const std::string source = header.path.substr(0, header.path.size() - 2) + ".cc";
    std::ptrdiff_t lines = lines_in(header);
    for (const SourceFile& file : tree)
      if (file.path == source) lines += lines_in(file);
    std::set<std::string> includers;
    for (const auto& [name, files] : users)
      for (const SourceFile* file : files)
        if (is_named_by(header.path, name) && file->path != source) includers.insert(file->path);
    if (lines < kMinPrivateLines && includers.size() == 1)
      findings.push_back(at(header, 1, "is small, and part of " + *includers.begin()));
  }
  return findings;
}

Findings long_files(const SourceFile& file) {
  const auto count = static_cast<std::size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
  if (!is_cpp(file.path) || count <= kMaxFileLines) return {};
  return {at(file, count,
             "the file has " + std::to_string(count) + " lines; at most " +
                 std::to_string(kMaxFileLines))};
}

Findings long_functions(const SourceFile& file) {
  Findings findings;
  if (!is_cpp(file.path)) return findings;
  const std::string code = without_comments_and_strings(file.text);
  std::size_t line = 1, head_start = 0, function_line = 0;
  int depth = 0, function_depth = -1;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '\n') ++line;
    if (c == '{') {
      if (function_depth < 0 &&
          opens_function(std::string_view(code).substr(head_start, i - head_start))) {
        function_depth = depth;
        function_line = line;
      }
      ++depth;
    }
    if (c == '}') {
      --depth;
      if (depth == function_depth) {
        const std::size_t length = line - function_line + 1;
        if (length > kMaxFunctionLines)
          findings.push_back(at(file, function_line,
                                "a function of " + std::to_string(length) + " lines; at most " +
                                    std::to_string(kMaxFunctionLines)));
        function_depth = -1;
      }
    }
    // A preprocessor line belongs to no declaration.
    if (c == '#' && (i == 0 || code[i - 1] == '\n')) {
      while (i < code.size() && code[i] != '\n') ++i;
      ++line;
      head_start = i;
    }
    if (c == '{' || c == '}' || c == ';') head_start = i + 1;
  }
  return findings;
}

Findings empty_names(const SourceFile& file) {
  static const std::set<std::string> kEmpty = {"util",    "utils", "common",  "helper",
                                               "helpers", "misc",  "manager", "managers"};
  Findings findings;
  std::string word;
  for (const char c : file.path + "/") {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (kEmpty.count(word)) findings.push_back(at(file, 1, "the name '" + word + "' says nothing"));
    word.clear();
  }
  return findings;
}

Findings banned_texts(const SourceFile& file) {
  Findings findings;
  if (!is_cpp(file.path) || file.path.starts_with("tests/house/")) return findings;
  const std::string folder = first_folder(file.path);
  const bool may_sleep =
      folder == "bench" || folder == "examples" || file.path.find("/workers/") != std::string::npos;
  const bool is_public = file.path.find("/include/") != std::string::npos;
  const auto code = lines_of(without_comments_and_strings(file.text));
  const auto lines = lines_of(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& text = lines[i];
    if (text.find("<boost/asio.hpp>") != std::string::npos)
      findings.push_back(at(file, i + 1, "include the parts of Asio that are used"));
    for (const char* sleeper : {"sleep_for", "sleep_until", "usleep", "nanosleep", "sleep"})
      if (!may_sleep && i < code.size() && has_word(code[i], sleeper))
        findings.push_back(at(file, i + 1, std::string(sleeper) + ": wait for the event instead"));
    for (const char* foreign :
         {"#include <boost/asio", "#include <spdlog", "#include <CLI", "#include <cuda",
          "#include <nccl", "#include <mpi", "#include <gloo"})
      if (is_public && text.rfind(foreign, 0) == 0)
        findings.push_back(
            at(file, i + 1, "a public header shows a library that should stay inside"));
    for (const char* open : {"TODO", "FIXME", "XXX"})
      if (has_word(text, open))
        findings.push_back(
            at(file, i + 1, std::string(open) + ": finish it, or say in docs/ what is missing"));
    for (const char* root : {"work", "root", "farm", "home"})
      if (text.find(std::string("\"/") + root + "/") != std::string::npos)
        findings.push_back(at(file, i + 1, "a path of one machine"));
  }
  return findings;
}

namespace {

// The cells of a table's row, without what Markdown adds around them. "\\|" is no border.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells(1);
  for (std::size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '|' && row[i - 1] != '\\') {
      cells.emplace_back();
    } else {
      cells.back() += row[i];
    }
  }
  return cells;
}

// Characters, not bytes: those that continue one are not counted.
std::size_t characters_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

bool is_page(const SourceFile& file) {
  return file.path == "README.md" || (file.path.starts_with("docs/") && file.path.ends_with(".md"));
}

}  // namespace

Findings long_cells(const SourceFile& file) {
  Findings findings;
  if (!is_page(file)) return findings;
  const auto lines = lines_of(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_with('|')) continue;
    for (const std::string& cell : cells_of(lines[i])) {
      // One blank stands on each side.
      const std::size_t length = characters_of(cell);
      if (length > kMaxCellCharacters + 2)
        findings.push_back(at(file, i + 1,
                              "a table cell of " + std::to_string(length - 2) +
                                  " characters; at most " + std::to_string(kMaxCellCharacters)));
    }
  }
  return findings;
}

namespace {

// What only a measurement can have told: a rate, what something takes or takes about, a ratio.
// Limits and timeouts ("waits 200 ms at the most") and durations in whole seconds are none.
const std::regex& measured() {
  static const std::regex kMeasured(
      R"(\d ?(ns|[GM]i?B/s|[GM]bit/s|op/s)\b)"
      R"(|\b(takes?|took|costs?) [^.,:;|(]{0,50}\b[\d.]*\d( to [\d.]+)? (us|ms|%)(?!\w))"
      R"(|\b(takes?|took|costs?) [^.,:;|(]{0,50}\b\d+\.\d+ s\b)"
      R"(|\b(some|about) [\d.]+ (us|ms)\b)"
      R"(|\d (times|x) (as (fast|long|much)|faster|slower)\b)");
  return kMeasured;
}

}  // namespace

Findings figures_outside_benchmarks(const SourceFile& file) {
  Findings findings;
  if (!is_page(file) || file.path == "docs/benchmarks.md") return findings;
  const auto lines = lines_of(file.text);
  bool is_output = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("```")) is_output = !is_output;
    std::smatch figure;
    if (!is_output && !lines[i].starts_with("    ") &&
        std::regex_search(lines[i], figure, measured()))
      findings.push_back(
          at(file, i + 1, "'" + figure.str() + "' is a figure: it belongs to docs/benchmarks.md"));
  }
  return findings;
}

Findings long_readme(const SourceFile& file) {
  if (file.path != "README.md") return {};
  const auto count = std::count(file.text.begin(), file.text.end(), '\n');
  if (count <= kMaxReadmeLines) return {};
  return {at(file, static_cast<std::size_t>(count),
             "README.md has " + std::to_string(count) + " lines; at most " +
                 std::to_string(kMaxReadmeLines))};
}

Findings unexplained_names(std::string_view names, const SourceFile& file) {
  if (file.path != "docs/dist.md") return {};
  std::string rows;
  std::istringstream page(file.text);
  for (std::string line; std::getline(page, line);)
    if (line.starts_with('|')) rows += line + '\n';
  Findings findings;
  std::istringstream list{std::string(names)};
  for (std::string name; std::getline(list, name);)
    if (!name.empty() && !name.starts_with('#') && !has_word(rows, name))
      findings.push_back(at(file, 1, "no table row explains " + name));
  return findings;
}

}  // namespace dtrun::house
