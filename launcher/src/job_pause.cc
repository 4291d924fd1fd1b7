#include "job_pause.h"

#include <signal.h>

#include <utility>

#include "terminal/foreground.h"

namespace dtrun::launcher {
namespace {

// If a debugger holds the guard, dtrun stops itself after this time all the same: the shell wants
// its terminal.
constexpr auto kPatience = std::chrono::seconds(2);

}  // namespace

JobPause::JobPause(base::EventLoop& loop, GuardLink& link, Callback before_stop,
                   Callback after_stop)
    : link_(link),
      before_stop_(std::move(before_stop)),
      after_stop_(std::move(after_stop)),
      answer_(loop) {}

void JobPause::begin() {
  if (std::exchange(begun_, true)) return;
  link_.send(MessageKind::kPause, PauseOrder{});
  answer_.start(base::Deadline::after(kPatience), [this] { on_ranks_stopped(); });
}

void JobPause::on_ranks_stopped() {
  if (!std::exchange(begun_, false)) return;
  answer_.cancel();
  before_stop_();
  stop_this_process(SIGTSTP);
  link_.send(MessageKind::kResume, PauseOrder{});
  after_stop_();
}

}  // namespace dtrun::launcher
