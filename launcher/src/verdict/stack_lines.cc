#include "verdict/stack_lines.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>
#include <sstream>

#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/tool_process.h"
#include "dtrun/base/utf8.h"
#include "verdict/elf_symbols.h"

namespace dtrun::launcher {
namespace {

using rendezvous::CrashFrame;
using Places = std::vector<CodePlace>;

constexpr std::size_t kMostStackBytes = 2000;
constexpr std::size_t kLongestFunction = 120;

std::string basename_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string read_all(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return "";
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

/// The path of the first of the programs that is here; empty: none is.
std::string line_program() {
  const std::string path = base::get_env("PATH").value_or("");
  for (const char* name : {"addr2line", "eu-addr2line"}) {
    try {
      return base::find_program(name, path);
    } catch (const base::Error&) {
    }
  }
  return "";
}

/// What it prints. Empty: it cannot be run, has failed, or takes too long.
std::string output_of(base::ToolCommand command, base::Deadline deadline) try {
  const base::UniqueFd output(::memfd_create("dtrun-lines", MFD_CLOEXEC));
  const base::UniqueFd errors(::memfd_create("dtrun-line-errors", MFD_CLOEXEC));
  if (!output || !errors) return "";
  // It must not ask servers for what is not here.
  base::Environment environment = base::Environment::current();
  environment.unset("DEBUGINFOD_URLS");
  command.environment = environment.as_strings();
  base::EventLoop loop;
  bool has_ended = false;
  const base::ToolStreams streams{.out = output.get(), .err = errors.get()};
  const base::ToolProcess process(loop, command, streams, [&](base::ExitStatus status) {
    has_ended = status.success();
    loop.stop();
  });
  base::Timer patience(loop);
  patience.start(deadline, [&] { loop.stop(); });
  loop.run();
  return has_ended ? read_all(output.get()) : "";
} catch (const base::Error&) {
  return "";
}

std::vector<Places> places_in(const std::string& file, const std::vector<std::uint64_t>& offsets,
                              const std::string& program, base::Deadline deadline) {
  std::vector<Places> places(offsets.size());
  if (!program.empty() && !deadline.expired()) {
    base::ToolCommand command;
    command.path = program;
    command.arguments = {"-a", "-f", "-C", "-i", "-e", file};
    for (const std::uint64_t offset : offsets)
      command.arguments.push_back(fmt::format("{:#x}", offset));
    places = parse_addr2line(output_of(std::move(command), deadline), offsets.size());
  }
  const std::vector<std::string> names = functions_at(file, offsets);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (places[i].empty() && !names[i].empty()) places[i].push_back({names[i], ""});
    // addr2line takes the next symbol before where it has no better.
    const bool is_guess = places[i].size() == 1 && places[i][0].line.empty();
    if (is_guess) places[i][0].function = names[i];
  }
  return places;
}

std::string place_text(const CodePlace& place, const CrashFrame& frame) {
  std::string function = place.function;
  if (function.size() > kLongestFunction) function = function.substr(0, kLongestFunction) + "...";
  if (!place.line.empty())
    return fmt::format("{} at {}", function.empty() ? "?" : function, place.line);
  const std::string where = frame.file.empty() ? "" : " in " + basename_of(frame.file);
  if (!function.empty()) return function + where;
  return fmt::format("{:#x}{}", frame.file.empty() ? frame.address : frame.offset, where);
}

bool is_main(const Places& places) {
  return !places.empty() && places.back().function == "main";
}

using KnownPlaces = std::map<std::pair<std::string, std::uint64_t>, Places>;

std::string readable_stack(const std::vector<CrashFrame>& stack, const KnownPlaces& known) {
  std::vector<std::string> lines;
  bool was_main = false;
  for (std::size_t i = 0; i < stack.size() && !was_main; ++i) {
    const auto at = known.find({stack[i].file, stack[i].offset});
    const Places& places = at == known.end() ? Places() : at->second;
    was_main = is_main(places);
    for (const CodePlace& place : places.empty() ? Places(1) : places)
      lines.push_back(place_text(place, stack[i]));
  }
  std::string text;
  for (std::size_t i = 0, end = 0; i < lines.size(); i = end) {
    end = i + 1;
    while (end < lines.size() && lines[end] == lines[i]) ++end;  // a recursion
    const std::string number =
        end == i + 1 ? fmt::format("#{}", i) : fmt::format("#{}-#{}", i, end - 1);
    const std::string line = fmt::format("{} {}", number, lines[i]);
    if (text.size() + line.size() > kMostStackBytes)
      return text + fmt::format("\n({} more)", lines.size() - i);
    text += (text.empty() ? "" : "\n") + line;
  }
  return base::as_utf8(base::without_controls(text));
}

}  // namespace

// "0x1234", then pairs of lines: the function and its place, of inlined functions first.
std::vector<Places> parse_addr2line(const std::string& printed, std::size_t count) {
  std::vector<Places> places;
  std::istringstream lines(printed);
  std::string line;
  bool is_place = false;
  while (std::getline(lines, line)) {
    if (!is_place && line.starts_with("0x")) {
      places.emplace_back();
      continue;
    }
    if (places.empty()) break;
    if (!is_place) {
      // eu-addr2line: "f inlined at app.cc:3 in g"
      const std::string function = line.substr(0, line.find(" inlined at "));
      places.back().push_back({function == "??" ? "" : demangled(function), ""});
    } else if (!line.starts_with("??") && !line.ends_with(":?") && !line.ends_with(":0")) {
      places.back().back().line = basename_of(line.substr(0, line.find(" (discriminator")));
    }
    is_place = !is_place;
  }
  places.resize(count);
  for (Places& one : places)
    if (one.size() == 1 && one[0].function.empty() && one[0].line.empty()) one.clear();
  return places;
}

std::vector<std::string> readable_stacks(const std::vector<std::vector<CrashFrame>>& stacks,
                                         base::Deadline deadline) {
  std::map<std::string, std::set<std::uint64_t>> wanted;
  for (const std::vector<CrashFrame>& stack : stacks)
    for (const CrashFrame& frame : stack)
      if (frame.file.starts_with('/')) wanted[frame.file].insert(frame.offset);
  const std::string program = line_program();
  KnownPlaces known;
  for (const auto& [file, set] : wanted) {
    const std::vector<std::uint64_t> offsets(set.begin(), set.end());
    std::vector<Places> places = places_in(file, offsets, program, deadline);
    for (std::size_t i = 0; i < offsets.size(); ++i)
      known[{file, offsets[i]}] = std::move(places[i]);
  }
  std::vector<std::string> texts;
  for (const std::vector<CrashFrame>& stack : stacks) texts.push_back(readable_stack(stack, known));
  return texts;
}

}  // namespace dtrun::launcher
