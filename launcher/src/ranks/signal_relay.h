// SignalRelay: passes the agent's signals on to the ranks, once. A sender that signals all
// processes of a job has signalled the ranks already, and the guard as well. So the guard watches
// the signals that it gets itself. If the agent's order may be earlier, it waits a moment for the
// guard's own copy of the signal. Lives in the guard, on its EventLoop.
#pragma once

#include <chrono>
#include <optional>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "plan/launch_plan.h"
#include "ranks/signal_sightings.h"

namespace dtrun::launcher {

class SignalRelay {
 public:
  using Send = base::EventLoop::Callback;

  /// Blocks the signals that may be passed on, in this thread. @throws Error kSystem
  SignalRelay(base::EventLoop& loop, const Options& options);

  /// Calls `send` now, in a moment, or not at all: the ranks have it.
  void pass(int signal, Send send);
  /// Whether the ranks were told to end before the agent has said so: its order is on its way.
  bool end_is_due();
  /// There is nobody any more to send anything to.
  void forget();

 private:
  struct Order {
    int signal = 0;
    Send send;
  };

  void read_own();
  void send_waiting();

  const StopOptions& stop_;
  std::chrono::nanoseconds wait_;
  base::UniqueFd own_;
  base::FdWatch own_watch_;
  base::Timer timer_;
  SignalSightings sightings_;
  std::optional<Order> waiting_;
};

}  // namespace dtrun::launcher
