#include "output/json_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "dtrun/base/base64.h"
#include "dtrun/base/utf8.h"
#include "text/json_string.h"

namespace dtrun::launcher {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Where a piece of at most `most` bytes ends, so that no character is cut.
std::size_t piece_end(std::string_view line, std::size_t most) {
  if (line.size() <= most) return line.size();
  std::size_t end = most;
  while (end > most - 3 && (byte_at(line, end) & 0xc0) == 0x80) --end;
  return end;
}

}  // namespace

JsonLines::JsonLines(const LineOrigin& origin) {
  origin_ = fmt::format("\"node\":{},\"host\":\"", origin.node_rank);
  append_json_string(origin_, base::as_utf8(origin.host));
  origin_ += fmt::format("\",\"rank\":{},\"local_rank\":{},\"stream\":\"{}\",", origin.rank,
                         origin.local_rank, name_of(origin.stream));
}

void JsonLines::add_piece(std::string_view text, LineEnd end) {
  constexpr std::string_view kText = "\"text\":\"";
  objects_ += head_;
  objects_ += kText;
  if (!append_json_string(objects_, text)) {
    objects_.resize(objects_.size() - kText.size());
    objects_ += "\"base64\":\"";
    objects_ += base::to_base64(text);
  }
  objects_ += end == LineEnd::kNewline ? "\"}\n" : "\",\"partial\":true}\n";
}

std::string_view JsonLines::add(std::string_view bytes, const LineTime& time) {
  objects_.clear();
  head_ = fmt::format("{{\"time\":\"{}\",{}", iso_time(time.time), origin_);
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    std::string_view line = bytes.substr(0, newline);
    bytes.remove_prefix(newline == std::string_view::npos ? bytes.size() : newline + 1);
    while (line.size() > kMostBytes) {
      const std::size_t end = piece_end(line, kMostBytes);
      add_piece(line.substr(0, end), LineEnd::kNone);
      line.remove_prefix(end);
    }
    add_piece(line, newline == std::string_view::npos ? LineEnd::kNone : LineEnd::kNewline);
  }
  return objects_;
}

}  // namespace dtrun::launcher
