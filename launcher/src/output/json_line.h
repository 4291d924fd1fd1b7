// JsonLines: the lines of one stream as JSON, an object on a line each:
// {"time":"2026-11-21T20:27:15.123Z","node":0,"host":"n0","rank":3,"local_rank":3,
//  "stream":"stdout","text":"step 1"}
// Instead of "text" there is "base64" where the bytes are not UTF-8. "partial":true says that no
// newline followed: of the last line of a stream, and of the pieces of a line that is longer than
// an object holds. Nothing is lost: text, or base64, and a newline unless partial, are the bytes.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "options/line_tag.h"

namespace dtrun::launcher {

class JsonLines {
 public:
  static constexpr std::size_t kMostBytes = 64 << 10;  ///< of a line in one object

  explicit JsonLines(const LineOrigin& origin);
  /// Whole lines, or pieces of a long one. The result is good until the next call.
  std::string_view add(std::string_view bytes, const LineTime& time);

 private:
  enum class LineEnd { kNewline, kNone };
  void add_piece(std::string_view text, LineEnd end);

  std::string origin_;  // what is the same in all objects
  std::string objects_;
  std::string head_;  // what is the same in all of one call
};

}  // namespace dtrun::launcher
