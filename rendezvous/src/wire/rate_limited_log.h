// RateLimitedLog: warnings about what strangers do. A few at once are printed; of a flood, one now
// and then, with how many there were in between. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/log.h"

namespace dtrun::rendezvous {

class RateLimitedLog {
 public:
  explicit RateLimitedLog(base::log::Component component,
                          base::Deadline::Duration period = std::chrono::seconds(30))
      : component_(component), period_length_(period) {}

  void warning(const std::string& text);

 private:
  static constexpr int kLinesPerPeriod = 5;

  const base::log::Component component_;
  const base::Deadline::Duration period_length_;
  int lines_left_ = kLinesPerPeriod;
  std::size_t unsaid_ = 0;
  base::Deadline period_ = base::Deadline::after({});
};

}  // namespace dtrun::rendezvous
