// OutputFlush: the guard's wait for the end of a round's output. It ends when OutputDrain, on the
// output's thread, says so, or, where that thread hangs, with the patience. On the guard's
// EventLoop.
#pragma once

#include <memory>

#include "output/output_thread.h"

namespace dtrun::launcher {

class OutputFlush {
 public:
  using Patience = OutputDrain::Patience;

  OutputFlush(base::EventLoop& loop, OutputThread& output) : output_(output), timer_(loop) {}
  ~OutputFlush();
  OutputFlush(const OutputFlush&) = delete;
  OutputFlush& operator=(const OutputFlush&) = delete;

  /// @param on_end called once
  void start(base::Deadline::Duration grace, base::EventLoop::Callback on_end);
  /// May be called also while it waits.
  void set_patience(Patience patience);

 private:
  void limit();
  void give_up();
  void end();

  OutputThread& output_;
  base::Timer timer_;
  base::EventLoop::Callback on_end_;  // none: not started, or ended
  base::Deadline grace_ = base::Deadline::never();
  Patience patience_ = Patience::kForReader;
  std::shared_ptr<int> here_ = std::make_shared<int>();  // for callbacks that may come too late
};

}  // namespace dtrun::launcher
