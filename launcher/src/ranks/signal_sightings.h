// SignalSightings: signals that whoever signals all processes of a job at once (Slurm's
// proctrack/linuxproc, systemd) has sent to the guard, and hence to the ranks,
// too: the agent's order to pass the same one on is met by one of them. Pure.
#pragma once

#include <chrono>
#include <map>

namespace dtrun::launcher {

class SignalSightings {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// This process got it, from somebody who signals all.
  void add(int signal, Time now) { seen_[signal] = now; }

  /// Whether the ranks have got the signal. Each sighting counts once, and not for long: otherwise
  /// a sighting without an order of the agent would make the next order seem carried out.
  bool take(int signal, Time now);
  /// Whether an order is still to come for it.
  bool has(int signal, Time now) const;

 private:
  std::map<int, Time> seen_;
};

}  // namespace dtrun::launcher
