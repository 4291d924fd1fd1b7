#include "output/line_filter.h"

#include <algorithm>
#include <utility>

namespace dtrun::launcher {
namespace {

constexpr std::size_t kLongLine = 1 << 20;

}  // namespace

bool LineFilter::matches(std::string_view line) const {
  return std::any_of(texts_.begin(), texts_.end(),
                     [&](const std::string& text) { return line.find(text) != line.npos; });
}

void LineFilter::add_line(std::string_view line) {
  if (matches(line)) file_->append(tag_ + std::string(line) + "\n");
}

void LineFilter::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    const bool ends = newline != std::string_view::npos;
    const std::string_view part = bytes.substr(0, newline);
    bytes.remove_prefix(ends ? newline + 1 : bytes.size());
    if (long_line_ != LongLine::kNone) {
      if (long_line_ == LongLine::kTaken) file_->append(std::string(part) + (ends ? "\n" : ""));
      if (ends) long_line_ = LongLine::kNone;
    } else if (ends && begun_.empty()) {
      add_line(part);
    } else {
      begun_ += part;
      if (ends) {
        add_line(std::exchange(begun_, {}));
      } else if (begun_.size() >= kLongLine) {
        long_line_ = matches(begun_) ? LongLine::kTaken : LongLine::kLeft;
        if (long_line_ == LongLine::kTaken) file_->append(tag_ + begun_);
        begun_.clear();
      }
    }
  }
}

void LineFilter::end() {
  if (!begun_.empty()) add_line(std::exchange(begun_, {}));
}

}  // namespace dtrun::launcher
