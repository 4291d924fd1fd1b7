// OutputDrain: waits until all that a round's ranks have written, now dead, has been passed on, as
// long as it makes sense to wait. On the guard's EventLoop.
#pragma once

#include <functional>

#include "dtrun/base/event_loop.h"
#include "output/output.h"

namespace dtrun::launcher {

class OutputDrain {
 public:
  enum class Patience {
    kForReader,  ///< a reader of ours that takes its time is waited for
    kForGrace,   ///< what a reader has not taken by then is dropped
    kBriefly,    ///< what it has not taken now is passed on while the next round runs
    kNone,       ///< it is dropped now
  };

  OutputDrain(base::EventLoop& loop, Output& output) : output_(output), timer_(loop), soon_(loop) {}
  ~OutputDrain();
  OutputDrain(const OutputDrain&) = delete;
  OutputDrain& operator=(const OutputDrain&) = delete;

  /// @param on_end called once
  void start(base::Deadline::Duration grace, base::EventLoop::Callback on_end);
  /// Also while it waits.
  void set_patience(Patience patience) { patience_ = patience; }

 private:
  void watch();
  void check();
  void end();

  Output& output_;
  base::Timer timer_;
  base::Timer soon_;
  base::EventLoop::Callback on_end_;  // none: not started, or ended
  base::Deadline limit_ = base::Deadline::never();
  Patience patience_ = Patience::kForReader;
};

}  // namespace dtrun::launcher
