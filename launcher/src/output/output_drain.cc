#include "output/output_drain.h"

#include <utility>

namespace dtrun::launcher {

using base::Deadline;

namespace {

// When no process of the job is left, its pipes end at once. A pipe that does not end is held by a
// process outside the job.
constexpr auto kPipePatience = std::chrono::seconds(1);

}  // namespace

OutputDrain::~OutputDrain() {
  output_.on_stream_end(nullptr);
  output_.on_idle(nullptr);
  output_.on_congestion(nullptr);
}

void OutputDrain::start(Deadline::Duration grace, base::EventLoop::Callback on_end) {
  on_end_ = std::move(on_end);
  limit_ = Deadline::after(grace);
  output_.on_stream_end([this] { check(); });
  output_.on_idle([this] { check(); });
  // By way of the loop: a stream is on the stack.
  output_.on_congestion([this] { soon_.start(Deadline::after({}), [this] { check(); }); });
  watch();
  check();
}

void OutputDrain::watch() {
  timer_.start(Deadline::after(kPipePatience), [this] {
    if (patience_ == Patience::kNone || (patience_ == Patience::kForGrace && limit_.expired()))
      output_.abandon();
    // Pipes that no process of the job holds are not waited for.
    if (output_.idle()) output_.finish();
    if (patience_ == Patience::kBriefly) return end();
    watch();
  });
}

void OutputDrain::check() {
  if (!on_end_) return;
  if (patience_ != Patience::kBriefly) {
    if (output_.ended() && output_.idle()) end();
  } else if (output_.ended()) {
    end();
  } else if (output_.congested()) {
    output_.finish_errors();
    end();
  }
}

void OutputDrain::end() {
  timer_.cancel();
  soon_.cancel();
  if (on_end_) std::exchange(on_end_, nullptr)();
}

}  // namespace dtrun::launcher
