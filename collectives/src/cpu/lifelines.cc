#include "lifelines.h"

#include <algorithm>

namespace dtrun::collectives::cpu {

Lifelines::Found Lifelines::look(const Commons& commons, int world_rank,
                                 const std::function<bool(int, int)>& watch) {
  const auto known = std::find_if(lines_.begin(), lines_.end(),
                                  [&](const Line& line) { return line.world_rank == world_rank; });
  if (known != lines_.end()) {
    lines_.splice(lines_.end(), lines_, known);
  } else {
    if (lines_.size() >= kMost) lines_.pop_front();
    base::UniqueFd process = process_of(commons, world_rank);
    if (process && watch(process.get(), world_rank))
      lines_.push_back({world_rank, std::move(process)});
  }
  // After the pidfd was made: its process was that rank's, then, and not one with an old number.
  if (LifeSign::is_seen(commons, world_rank)) return Found::alive;
  drop(world_rank);
  return Found::dead;
}

void Lifelines::drop(int world_rank) {
  std::erase_if(lines_, [&](const Line& line) { return line.world_rank == world_rank; });
}

}  // namespace dtrun::collectives::cpu
