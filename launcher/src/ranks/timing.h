// Timing: how long each step of a launch took (--timing). Marks are always taken, because they cost
// nothing. Times are of the steady clock, which all processes of a machine share. Pure, except
// now_ns() and cpu_before_main().
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::launcher {

/// Nanoseconds; 0: the launch did not get so far.
struct Timing {
  std::int64_t exec_cpu = 0;  ///< CPU time that was used up when main began: exec, loading
  std::int64_t main = 0;
  std::int64_t options_read = 0;
  std::int64_t planned = 0;
  std::int64_t guard_started = 0;
  std::int64_t round_opened = 0;  ///< order to start ranks here; of the first round, as below
  std::int64_t spawn_began = 0;
  std::int64_t first_spawned = 0;  ///< its program runs
  std::int64_t last_spawned = 0;
  std::int64_t first_at_store = 0;  ///< a rank of any node has spoken to the store, which is here
  std::int64_t all_at_store = 0;    ///< as many clients as there are ranks have
  std::int64_t ranks_ended = 0;     ///< of the last round
  std::int64_t end = 0;
};

/// When the ranks of the first round came to their store. A client does not say whose it is: each
/// rank's first connection counts as one, and nearly all ranks have no second before the others
/// have come.
class StoreArrivals {
 public:
  void begin_round(int world_size);
  void add(std::int64_t now);
  std::int64_t first() const { return first_; }
  std::int64_t all() const { return all_; }

 private:
  int rounds_ = 0;
  int clients_ = 0;
  int world_size_ = 0;
  std::int64_t first_ = 0;
  std::int64_t all_ = 0;
};

/// Main's marks, and from round_opened to ranks_ended the agent's.
Timing joined(Timing main, const Timing& agent);

std::int64_t now_ns();
std::int64_t cpu_before_main();

/// A line for each step: how long it took, and when it was over.
std::string timing_text(const Timing& timing, int local_ranks);
/// One object on one line; milliseconds.
std::string timing_json(const Timing& timing, int local_ranks);

}  // namespace dtrun::launcher
