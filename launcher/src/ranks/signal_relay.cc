#include "ranks/signal_relay.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"

namespace dtrun::launcher {
namespace {

using Clock = std::chrono::steady_clock;

bool ends_ranks(const SignalPolicy& policy) {
  return policy.action == SignalPolicy::Action::kStop ||
         policy.action == SignalPolicy::Action::kDrain;
}

// A signal that is ignored reaches no signalfd, unless it is blocked as well.
base::UniqueFd open_signals(const StopOptions& stop) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const SignalPolicy& policy : stop.signals)
    if (policy.action != SignalPolicy::Action::kIgnore) ::sigaddset(&set, policy.signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  base::UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd)
    throw base::system_error("watch the guard's own signals",
                             "raise the limit of open files (ulimit -n)");
  return fd;
}

// `pkill dtrun` means dtrun's processes and no rank. A sender that signals all processes of a job
// is the one that started it (slurmstepd, init), or is outside of this pid namespace.
bool means_all(const signalfd_siginfo& info) {
  return info.ssi_pid == 0 || base::is_above(static_cast<pid_t>(info.ssi_pid));
}

}  // namespace

SignalRelay::SignalRelay(base::EventLoop& loop, const Options& options)
    : stop_(options.stop),
      wait_(options.shared_signal_wait),
      own_(open_signals(options.stop)),
      own_watch_(loop, own_.get()),
      timer_(loop) {
  own_watch_.on_readable([this] { read_own(); });
}

void SignalRelay::pass(int signal, Send send) {
  send_waiting();
  read_own();
  if (sightings_.take(signal, Clock::now())) {
    base::log::info(base::log::Component::kLauncher, "the ranks have got {} already",
                    base::signal_name(signal));
    return;
  }
  waiting_ = Order{signal, std::move(send)};
  if (wait_ <= wait_.zero()) return send_waiting();
  timer_.start(base::Deadline::after(wait_), [this] { send_waiting(); });
}

bool SignalRelay::end_is_due() {
  read_own();
  return std::ranges::any_of(stop_.signals, [this](const SignalPolicy& policy) {
    return ends_ranks(policy) && sightings_.has(policy.signal, Clock::now());
  });
}

void SignalRelay::forget() {
  waiting_.reset();
  timer_.cancel();
}

void SignalRelay::read_own() {
  signalfd_siginfo info;
  while (::read(own_.get(), &info, sizeof info) == sizeof info)
    if (means_all(info)) sightings_.add(static_cast<int>(info.ssi_signo), Clock::now());
  if (!waiting_ || !sightings_.take(waiting_->signal, Clock::now())) return;
  base::log::info(base::log::Component::kLauncher, "the ranks have got {} already",
                  base::signal_name(waiting_->signal));
  forget();
}

void SignalRelay::send_waiting() {
  const std::optional<Order> order = std::exchange(waiting_, std::nullopt);
  timer_.cancel();
  if (order) order->send();
}

}  // namespace dtrun::launcher
