#include "ranks/guard.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "dtrun/base/check.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/unique_fd.h"
#include "options/exit_code.h"
#include "output/output_flush.h"
#include "output/output_thread.h"
#include "ranks/containment.h"
#include "ranks/signal_relay.h"
#include "ranks/stdin_copies.h"
#include "ranks/worker_group.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;

class Guard {
 public:
  Guard(const LaunchPlan& plan, const LogFolder& errors, Containment& containment, GuardLink link)
      : plan_(plan),
        errors_(errors),
        containment_(containment),
        link_(std::move(link)),
        reaper_(loop_, [this](pid_t pid, base::ExitStatus status) { on_exit(pid, status); }),
        output_(loop_, plan),
        flush_(loop_, output_),
        relay_(loop_, plan.options),
        fence_(loop_),
        agent_watch_(loop_, link_.fd()) {
    output_.on_file_loss(
        [this](const std::string& text) { link_.send(MessageKind::kNote, GuardNote{}, text); });
    if (plan.options.output.closed_output == ClosedOutput::kStop)
      output_.on_reader_gone([this] { link_.send(MessageKind::kReaderGone, GuardNote{}); });
    // While the agent looks for the other nodes.
    prepare_group();
    agent_watch_.on_readable([this] { on_agent_message(); });
  }

  void run() { loop_.run(); }

 private:
  void prepare_group() {
    group_ = std::make_unique<WorkerGroup>(GroupSurroundings{plan_, errors_, containment_, loop_,
                                                             link_, output_, relay_, stdin_copies_},
                                           [this] { on_group_end(); });
  }

  void on_agent_message() {
    const std::optional<GuardMessage> message = link_.receive();
    if (!message) {
      on_agent_gone();
    } else if (message->kind == MessageKind::kStart) {
      start_round(message->as<StartOrder>());
    } else if (message->kind == MessageKind::kStop) {
      const auto order = message->as<StopOrder>();
      if (running_ && group_->round() == order.round) group_->stop(order);
    } else if (message->kind == MessageKind::kSignal) {
      const auto order = message->as<SignalOrder>();
      if (running_ && group_->round() == order.round) group_->pass(order);
    } else if (message->kind == MessageKind::kPause) {
      if (running_) group_->pause();
      output_.hide_status_now();
      link_.send(MessageKind::kPaused, PauseOrder{});
    } else if (message->kind == MessageKind::kResume) {
      if (running_) group_->resume();
    } else if (message->kind == MessageKind::kLease) {
      if (running_) set_fence(message->as<Lease>().until);
    } else if (message->kind == MessageKind::kFlush) {
      flush(message->as<FlushOrder>());
    } else if (message->kind == MessageKind::kJobEnd) {
      output_.end_readers(message->as<JobEnd>().exit_code);
    }
  }

  void flush(const FlushOrder& order) {
    using Patience = OutputFlush::Patience;
    flush_.set_patience(order.urgency == Urgency::kNow ? Patience::kNone : Patience::kForGrace);
    flush_.start(plan_.options.stop.shutdown_timeout, [this] {
      GroupEnd end;
      tell_losses(output_.state(), end);
      link_.send(MessageKind::kFlushed, end);
    });
  }

  void start_round(const StartOrder& order) {
    DT_CHECK(!running_);
    ended_group_.reset();
    if (!group_) prepare_group();
    running_ = true;
    containment_.await_proof();
    group_->start(order);
    set_fence(order.lease);
  }

  // The agent may be stopped, starved or cut off. The ranks end before others take their place,
  // because this process goes on.
  void set_fence(std::chrono::nanoseconds until) {
    lease_ =
        until == kNoLease ? Deadline::never() : Deadline::at(Deadline::Clock::time_point(until));
    if (lease_.is_never()) return fence_.cancel();
    fence_.start(lease_, [this] { on_lease_end(); });
  }

  void on_lease_end() {
    // Messages that the agent has sent while this process was held up come first.
    pollfd word{link_.fd(), POLLIN, 0};
    while (running_ && ::poll(&word, 1, 0) == 1) on_agent_message();
    if (running_ && lease_.expired()) group_->fence();
  }

  void on_exit(pid_t pid, const base::ExitStatus& status) {
    if (running_) group_->on_exit(pid, status);
  }

  void on_group_end() {
    running_ = false;
    fence_.cancel();
    relay_.forget();
    // The agent is dead, so nobody will read the error files.
    if (group_->succeeded() && plan_.options.rounds.one_round()) output_.remove(errors_);
    ended_group_ = std::move(group_);  // is still on the stack
    loop_.post([this] {
      ended_group_.reset();
      // Removed while the agent reports to the head, so that the end of the job does not wait for
      // the removal.
      if (!running_) containment_.remove_birthplace();
    });
  }

  void on_agent_gone() {
    if (plan_.debug_terminal) plan_.debug_terminal->restore();
    containment_.kill();
    if (running_) group_->kill_now();
    running_ = false;
    base::kill_descendants({}, Deadline::after(kKillPatience));
    loop_.stop();
  }

  const LaunchPlan& plan_;
  const LogFolder& errors_;
  Containment& containment_;
  base::EventLoop loop_;
  GuardLink link_;
  base::ChildReaper reaper_;
  OutputThread output_;
  OutputFlush flush_;
  SignalRelay relay_;
  StdinCopies stdin_copies_{[this] { return plan_.foreground && plan_.foreground->is_ours(); }};
  Deadline lease_ = Deadline::never();  // until when the ranks may live
  base::Timer fence_;                   // runs out with it
  base::FdWatch agent_watch_;
  std::unique_ptr<WorkerGroup> group_;  // for the round that runs, or the next
  std::unique_ptr<WorkerGroup> ended_group_;
  bool running_ = false;
};

}  // namespace

int run_guard(const LaunchPlan& plan, const LogFolder& errors, Containment& containment,
              GuardLink link) {
  ::setsid();
  ::prctl(PR_SET_NAME, "dtrun-guard");
  base::become_subreaper();
  base::continue_when_parent_dies();
  base::reserve_descriptors(plan.descriptors_of_guard);
  // Never destroyed: the process is about to end, and the agent waits for that.
  auto* const guard = new Guard(plan, errors, containment, std::move(link));
  guard->run();
  return kExitLauncherFailed;
}

}  // namespace dtrun::launcher
