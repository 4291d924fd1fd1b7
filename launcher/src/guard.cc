#include "guard.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "dtrun/base/check.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/process_tree.h"
#include "exit_code.h"
#include "output.h"
#include "output_drain.h"
#include "worker_group.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;

constexpr auto kKillPatience = std::chrono::seconds(10);

class Guard {
 public:
  Guard(const LaunchPlan& plan, const ErrorFolder& errors, GuardLink link)
      : plan_(plan),
        errors_(errors),
        link_(std::move(link)),
        reaper_(loop_, [this](pid_t pid, base::ExitStatus status) { on_exit(pid, status); }),
        output_(loop_, plan),
        flush_(loop_, output_),
        agent_watch_(loop_, link_.fd()) {
    // While the agent looks for the other nodes.
    prepare_group();
    agent_watch_.on_readable([this] { on_agent_message(); });
  }

  void run() { loop_.run(); }

 private:
  void prepare_group() {
    group_ = std::make_unique<WorkerGroup>(GroupSurroundings{plan_, errors_, loop_, link_, output_},
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
    } else if (message->kind == MessageKind::kFlush) {
      flush(message->as<FlushOrder>());
    }
  }

  void flush(const FlushOrder& order) {
    using Patience = OutputDrain::Patience;
    flush_.set_patience(order.urgency == Urgency::kNow ? Patience::kNone : Patience::kForGrace);
    flush_.start(plan_.options.shutdown_grace, [this] {
      GroupEnd end;
      end.lost_output_bytes = output_.lost_bytes();
      end.output_error = output_.error_number();
      link_.send(MessageKind::kFlushed, end);
    });
  }

  void start_round(const StartOrder& order) {
    DT_CHECK(!running_);
    ended_group_.reset();
    if (!group_) prepare_group();
    running_ = true;
    group_->start(order);
  }

  void on_exit(pid_t pid, const base::ExitStatus& status) {
    if (running_) group_->on_exit(pid, status);
  }

  void on_group_end() {
    running_ = false;
    ended_group_ = std::move(group_);  // is still on the stack
    loop_.post([this] { ended_group_.reset(); });
  }

  void on_agent_gone() {
    if (running_) group_->kill_now();
    base::kill_descendants({}, Deadline::after(kKillPatience));
    errors_.remove();
    loop_.stop();
  }

  const LaunchPlan& plan_;
  const ErrorFolder& errors_;
  base::EventLoop loop_;
  GuardLink link_;
  base::ChildReaper reaper_;
  Output output_;
  OutputDrain flush_;
  base::FdWatch agent_watch_;
  std::unique_ptr<WorkerGroup> group_;  // of the round that runs, or the next
  std::unique_ptr<WorkerGroup> ended_group_;
  bool running_ = false;
};

}  // namespace

int run_guard(const LaunchPlan& plan, const ErrorFolder& errors, GuardLink link) {
  ::setsid();
  ::prctl(PR_SET_NAME, "dtrun-guard");
  ::signal(SIGPIPE, SIG_IGN);
  base::become_subreaper();
  Guard(plan, errors, std::move(link)).run();
  return kExitLauncherFailed;
}

}  // namespace dtrun::launcher
