#include "dtrun/base/kill_ladder.h"

#include <signal.h>
#include <unistd.h>

namespace dtrun::base {
namespace {

void signal_group(pid_t group, int signal_number) {
  // A leader that has gone over to another group is not reaped yet, so its number is still its own.
  const bool leader_left = ::getpgid(group) != group;
  ::kill(-group, signal_number);
  if (leader_left) ::kill(group, signal_number);
  if (signal_number == SIGKILL) return;
  ::kill(-group, SIGCONT);
  if (leader_left) ::kill(group, SIGCONT);
}

}  // namespace

void KillLadder::add(pid_t group) {
  groups_.insert(group);
  if (step_ != 0) signal_group(group, step_);
}

void KillLadder::start(int first_signal) {
  if (step_ != 0) return;
  if (grace_ <= Deadline::Duration::zero()) {
    kill_now();
    return;
  }
  timer_.start(Deadline::after(grace_), [this] { kill_now(); });
  send(first_signal);
}

void KillLadder::kill_now() {
  if (step_ == SIGKILL) return;
  timer_.cancel();
  send(SIGKILL);
}

void KillLadder::send(int signal_number) {
  step_ = signal_number;
  for (const pid_t group : groups_) signal_group(group, signal_number);
  if (on_step_) on_step_(signal_number);
}

}  // namespace dtrun::base
