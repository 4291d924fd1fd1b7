// StatusLine: the state of this node's ranks, in the last line of a terminal. It gives way to every
// other line and comes back below them, at most five times a second. On the guard's EventLoop.
#pragma once

#include <chrono>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/output_sink.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

struct StatusFacts {
  int up = 0;  ///< ranks that run
  int ranks = 0;
  int round = 0;  ///< 0: the first
  int restarts = 0;
  int max_restarts = 0;
  bool operator==(const StatusFacts&) const = default;
};

/// "4/4 up · round 2, restart 1/3 · 02:13", as much of it as there is room for. Pure.
std::string status_text(const StatusFacts& facts, std::chrono::nanoseconds elapsed, Letters letters,
                        std::size_t columns);

class StatusLine {
 public:
  /// @param fd the terminal behind the sink
  StatusLine(base::EventLoop& loop, base::OutputSink& sink, int fd, Letters letters);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const StatusFacts& facts);
  void hide();

 private:
  enum class When { kSoon, kNextSecond };
  void draw();
  void draw_again(When when);

  base::OutputSink& sink_;
  int fd_;
  Letters letters_;
  base::Timer timer_;
  StatusFacts facts_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool shown_ = false;
  bool soon_ = false;  // the timer is set for a time before the next second
};

}  // namespace dtrun::launcher
