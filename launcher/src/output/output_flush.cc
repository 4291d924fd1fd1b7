#include "output/output_flush.h"

#include <utility>

namespace dtrun::launcher {

using base::Deadline;

namespace {

// The time that the thread needs to act on its own timeout, if it does not hang.
constexpr auto kThreadPatience = std::chrono::seconds(2);

}  // namespace

OutputFlush::~OutputFlush() {
  if (on_end_) output_.end_drain();
}

void OutputFlush::start(Deadline::Duration grace, base::EventLoop::Callback on_end) {
  on_end_ = std::move(on_end);
  grace_ = Deadline::after(grace + kThreadPatience);
  output_.drain(grace, patience_, [this, here = std::weak_ptr<int>(here_)] {
    if (!here.expired()) end();
  });
  limit();
}

void OutputFlush::set_patience(Patience patience) {
  patience_ = patience;
  if (!on_end_) return;
  output_.set_patience(patience);
  limit();
}

void OutputFlush::limit() {
  switch (patience_) {
    case Patience::kForReader:
      return timer_.cancel();
    case Patience::kForGrace:
      return timer_.start(grace_, [this] { give_up(); });
    case Patience::kBriefly:
      return timer_.start(Deadline::after(kThreadPatience), [this] { end(); });
    case Patience::kNone:
      return timer_.start(Deadline::after(kThreadPatience), [this] { give_up(); });
  }
}

void OutputFlush::give_up() {
  output_.give_up();
  end();
}

void OutputFlush::end() {
  timer_.cancel();
  if (on_end_) std::exchange(on_end_, nullptr)();
}

}  // namespace dtrun::launcher
