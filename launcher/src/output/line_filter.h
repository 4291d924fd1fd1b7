// LineFilter: the lines of one stream that have one of some texts, each with the stream's tag, into
// a file that the streams of an attempt share.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/stream_copy.h"

namespace dtrun::launcher {

class LineFilter {
 public:
  LineFilter(std::vector<std::string> texts, std::string tag,
             std::shared_ptr<base::StreamCopy> file)
      : texts_(std::move(texts)), tag_(std::move(tag)), file_(std::move(file)) {}

  void add(std::string_view bytes);
  /// The stream has ended: its last line has no newline.
  void end();

 private:
  // If a line is longer than the part that is kept, its first part decides.
  enum class LongLine { kNone, kTaken, kLeft };

  bool matches(std::string_view line) const;
  void add_line(std::string_view line);

  std::vector<std::string> texts_;
  std::string tag_;
  std::shared_ptr<base::StreamCopy> file_;
  std::string begun_;  // a line without its end
  LongLine long_line_ = LongLine::kNone;
};

}  // namespace dtrun::launcher
