#include "wire/rate_limited_log.h"

namespace dtrun::rendezvous {

void RateLimitedLog::warning(const std::string& text) {
  if (period_.expired()) {
    if (unsaid_ > 0)
      base::log::warning(component_, "{} more lines like these were left out", unsaid_);
    unsaid_ = 0;
    lines_left_ = kLinesPerPeriod;
    period_ = base::Deadline::after(period_length_);
  }
  if (lines_left_ == 0) {
    ++unsaid_;
    return;
  }
  base::log::warning(component_, "{}", text);
  if (--lines_left_ == 0)
    base::log::warning(component_, "for {}, more lines like these are only counted",
                       base::format_duration(period_length_));
}

}  // namespace dtrun::rendezvous
