#include "dtrun/rendezvous/crash_stack.h"

#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

namespace dtrun::rendezvous {
namespace {

/// "0x12ab", as a whole.
std::optional<std::uint64_t> hexadecimal_number(std::string_view text) {
  std::uint64_t value = 0;
  if (!text.starts_with("0x")) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<CrashFrame> frame_of(std::string_view line, std::size_t number) {
  const std::string begin = "#" + std::to_string(number) + " ";
  if (!line.starts_with(begin)) return std::nullopt;
  line.remove_prefix(begin.size());
  const auto space = line.find(' ');
  const auto address = hexadecimal_number(line.substr(0, space));
  if (!address) return std::nullopt;
  if (space == std::string_view::npos) return CrashFrame{*address, "", 0};
  const std::string_view place = line.substr(space + 1);
  const auto plus = place.rfind('+');
  if (plus == std::string_view::npos) return std::nullopt;
  const auto offset = hexadecimal_number(place.substr(plus + 1));
  if (!offset) return std::nullopt;
  return CrashFrame{*address, std::string(place.substr(0, plus)), *offset};
}

}  // namespace

std::vector<CrashFrame> parse_crash_stack(const std::string& text) {
  std::vector<CrashFrame> frames;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::optional<CrashFrame> frame = frame_of(line, frames.size());
    if (!frame || frames.size() == kMostCrashFrames) return {};
    frames.push_back(std::move(*frame));
  }
  return frames;
}

}  // namespace dtrun::rendezvous
