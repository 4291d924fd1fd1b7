// OutputDrain: waits until all output of a round's dead ranks has been passed on, as long as the
// patience allows. On the guard's EventLoop.
#pragma once

#include <functional>

#include "dtrun/base/event_loop.h"
#include "output/output.h"

namespace dtrun::launcher {

class OutputDrain {
 public:
  enum class Patience {
    kForReader,  ///< wait for a slow reader
    kForGrace,   ///< wait for the grace, then drop the rest
    kBriefly,    ///< do not wait: pass the rest on while the next round runs
    kNone,       ///< drop the rest now
  };

  OutputDrain(base::EventLoop& loop, Output& output) : output_(output), timer_(loop), soon_(loop) {}
  ~OutputDrain();
  OutputDrain(const OutputDrain&) = delete;
  OutputDrain& operator=(const OutputDrain&) = delete;

  /// @param on_end called once
  void start(base::Deadline::Duration grace, base::EventLoop::Callback on_end);
  /// May be called also while it waits.
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
