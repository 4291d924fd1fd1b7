// ProgressWatch: --progress-timeout. Looks at the job page from time to time; where a rank has been
// in one operation for too long, it finds out whom the others wait for, and tells once. The page
// shows this node's ranks, and for which of them those of other nodes wait, as the cpu backend
// tells; of their groups those that record their operations: cpu, gloo and mpi. Belongs to the
// guard's EventLoop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/rendezvous/flight_explanation.h"
#include "dtrun/rendezvous/job_page.h"

namespace dtrun::launcher {

/// The first finding about an operation that has taken this long; nullopt: all make progress. Pure.
std::optional<rendezvous::FlightFinding> find_stall(const rendezvous::FlightRecord& record,
                                                    std::chrono::nanoseconds timeout);

class ProgressWatch {
 public:
  /// How often the same operation was found to stand still, from 1.
  using OnStall = std::function<void(const rendezvous::FlightFinding&, int times)>;

  /// @param page outlives this. @param timeout 0: nothing is watched
  ProgressWatch(base::EventLoop& loop, const rendezvous::JobPage& page,
                std::chrono::nanoseconds timeout, OnStall on_stall);

  /// Begins, or begins anew after a pause: the time in which ranks were stopped does not count.
  void start(int world_size);
  void stop() { timer_.cancel(); }

 private:
  void plan_look();
  void look();

  const rendezvous::JobPage& page_;
  const std::chrono::nanoseconds timeout_;
  const OnStall on_stall_;
  base::Timer timer_;
  base::Deadline::Clock::time_point started_{};
  int world_size_ = 0;
  std::string told_;  ///< the stall: its kind, its group, its number there
  int times_ = 0;
};

}  // namespace dtrun::launcher
