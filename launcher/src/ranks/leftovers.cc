#include "ranks/leftovers.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "dtrun/base/process_tree.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;

// How long processes that a rank has left behind (Python's resource tracker, say) may take to end
// after SIGTERM.
constexpr auto kGrace = std::chrono::milliseconds(500);

}  // namespace

void Leftovers::signal(int signal_number, const std::unordered_map<pid_t, int>& ranks) {
  if (!base::has_children()) return;
  for (const pid_t pid : base::child_pids()) {
    if (ranks.count(pid) != 0) continue;
    if (::getpgid(pid) == pid) ::kill(-pid, signal_number);
    ::kill(pid, signal_number);
  }
}

void Leftovers::sweep(int last_signal, std::function<void(int)> on_end) {
  on_end_ = std::move(on_end);
  if (!base::has_children()) {
    end(0);
  } else if (last_signal == SIGKILL) {
    kill();
  } else {
    signal(SIGTERM, {});
    patience_.start(Deadline::after(kGrace), [this] { kill(); });
  }
}

void Leftovers::on_child_end() {
  if (on_end_ && !base::has_children()) end(0);
}

void Leftovers::kill() {
  containment_.kill();
  end(base::kill_descendants({}, Deadline::after(kKillPatience)));
}

void Leftovers::end(int unkillable) {
  patience_.cancel();
  std::exchange(on_end_, nullptr)(unkillable);
}

}  // namespace dtrun::launcher
