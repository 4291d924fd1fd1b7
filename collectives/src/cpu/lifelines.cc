#include "lifelines.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace dtrun::collectives::cpu {

Lifelines::Found Lifelines::add(const std::string& commons_name, int world_rank,
                                const std::function<void(int, int)>& watch) {
  const auto known = std::find_if(lines_.begin(), lines_.end(),
                                  [&](const Line& line) { return line.world_rank == world_rank; });
  if (known != lines_.end()) {
    lines_.splice(lines_.end(), lines_, known);
    return Found::watched;
  }
  std::optional<Lifeline> reached = reach(commons_name, world_rank);
  if (!reached) return Found::dead;
  // Nothing to hold on to now: whoever waits asks again.
  if (!reached->connection) return Found::watched;
  if (lines_.size() >= kMost) lines_.pop_front();
  Line& line = lines_.emplace_back(Line{world_rank, std::move(reached->connection), {}});
  if (reached->pid > 0 && reached->pid != ::getpid())
    line.process = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, reached->pid, 0)));
  watch(line.connection.get(), world_rank);
  if (line.process) watch(line.process.get(), world_rank);
  return Found::watched;
}

void Lifelines::drop(int world_rank) {
  std::erase_if(lines_, [&](const Line& line) { return line.world_rank == world_rank; });
}

}  // namespace dtrun::collectives::cpu
