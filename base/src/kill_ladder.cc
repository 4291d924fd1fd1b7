#include "dtrun/base/kill_ladder.h"

#include <signal.h>

#include "dtrun/base/process_tree.h"

namespace dtrun::base {
namespace {

void send_step(pid_t group, int signal_number) {
  signal_process_group(group, signal_number);
  // A stopped process acts on a signal only once it goes on.
  if (signal_number != SIGKILL) signal_process_group(group, SIGCONT);
}

}  // namespace

void KillLadder::add(pid_t group) {
  groups_.insert(group);
  if (step_ != 0) send_step(group, step_);
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
  for (const pid_t group : groups_) send_step(group, signal_number);
  if (on_step_) on_step_(signal_number);
}

}  // namespace dtrun::base
