#include "hosts/host_job.h"

#include <fmt/core.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>

#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "hosts/host_place.h"
#include "hosts/host_starter.h"
#include "options/exit_code.h"
#include "output/notice.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using Action = SignalPolicy::Action;

// How long a reader of the output that has stopped is waited for after the job's end.
constexpr auto kReaderPatience = std::chrono::seconds(10);

class HostJob {
 public:
  HostJob(const HostPlan& plan, const base::Environment& environment)
      : plan_(plan),
        out_(loop_, STDOUT_FILENO),
        err_(loop_, STDERR_FILENO),
        last_timer_(loop_),
        signals_(loop_, handled(plan.options.stop), [this](int number) { on_signal(number); }) {
    out_.on_reader_gone([this] { on_reader_gone(); });
    HostStarterCallbacks callbacks;
    callbacks.on_ready = [this] {
      started_ = true;
      starter_->go();
    };
    callbacks.on_failures = [this](const std::vector<HostFailure>& failures) {
      print_error(failure_text(failures, started_ ? HostPhase::kJob : HostPhase::kStart,
                               plan_.order.node_count));
    };
    callbacks.on_end = [this](int code) { on_end(code); };
    starter_ = std::make_unique<HostStarter>(
        loop_, HostSinks{out_, err_},
        HostStarterSetup{plan.order, environment, own_program_path(), plan.head_ports},
        std::move(callbacks));
  }

  int run() {
    loop_.run();
    return code_;
  }

 private:
  static std::vector<int> handled(const StopOptions& options) {
    std::vector<int> numbers;
    for (const SignalPolicy& policy : options.signals) numbers.push_back(policy.signal);
    return numbers;
  }

  // Each host's dtrun knows from its own options what the signal means for the ranks.
  void on_signal(int number) {
    const SignalPolicy* policy = plan_.options.stop.policy_of(number);
    if (policy == nullptr || policy->action == Action::kIgnore) return;
    starter_->pass_signal(number);
    if (policy->action == Action::kStop) return stop_by_signal(number, policy->time);
    if (policy->action != Action::kPause) return;
    ::raise(SIGSTOP);
    starter_->pass_signal(SIGCONT);
  }

  // The starter waits for a silent host as long as its ranks may take to end.
  void stop_by_signal(int number, Deadline::Duration time) {
    if (stop_signal_ != 0) return;
    stop_signal_ = number;
    const Deadline::Duration grace = time.count() >= 0 ? time : plan_.options.stop.shutdown_timeout;
    last_timer_.start(Deadline::after(grace + kReaderPatience), [this] { starter_->stop(); });
    if (!started_) starter_->stop();
  }

  void on_reader_gone() {
    if (plan_.options.output.closed_output != ClosedOutput::kStop) return;
    code_ = kExitSignal + SIGPIPE;
    starter_->stop();
  }

  void on_end(int code) {
    if (code_ == 0) code_ = code;
    if (stop_signal_ != 0)
      print_error(fmt::format("stopped by {}", base::signal_name(stop_signal_)));
    if (code_ == 0 && stop_signal_ != 0 && !started_) code_ = kExitSignal + stop_signal_;
    if (stop_signal_ != 0)
      last_timer_.start(Deadline::after(kReaderPatience), [this] { loop_.stop(); });
    else
      last_timer_.cancel();
    out_.on_idle([this] { stop_if_idle(); });
    err_.on_idle([this] { stop_if_idle(); });
    stop_if_idle();
  }

  void stop_if_idle() {
    if (!out_.idle() || !err_.idle()) return;
    tell_lost_output();
    loop_.stop();
  }

  void tell_lost_output() {
    if (out_.lost_bytes() == 0 || out_.error_number() == EPIPE) return;
    print_error(
        fmt::format("cannot write to the standard output: {}; {} bytes of the ranks' "
                    "output are lost",
                    strerrordesc_np(out_.error_number()), out_.lost_bytes()));
    if (code_ == 0) code_ = kExitSystem;
  }

  const HostPlan& plan_;
  base::EventLoop loop_;
  base::OutputSink out_, err_;
  base::Timer last_timer_;
  std::unique_ptr<HostStarter> starter_;
  base::SignalWatch signals_;
  int code_ = 0;
  int stop_signal_ = 0;
  bool started_ = false;
};

}  // namespace

int run_host_job(const HostPlan& plan, const base::Environment& environment) {
  return HostJob(plan, environment).run();
}

}  // namespace dtrun::launcher
