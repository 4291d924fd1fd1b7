#include "meeting/start_sign.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dtrun::launcher {

StartSign::StartSign(base::EventLoop& loop, base::UniqueFd source)
    : source_(std::move(source)), given_(!source_) {
  if (!given_) watch_.emplace(loop, source_.get()).on_readable([this] { read(); });
}

void StartSign::when_given(base::EventLoop::Callback callback) {
  if (given_) return callback();
  waiting_.push_back(std::move(callback));
}

void StartSign::read() {
  char letter = 0;
  const ssize_t got = ::read(source_.get(), &letter, 1);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  watch_->on_readable(nullptr);
  given_ = got > 0;
  if (!given_) {
    if (on_refusal_) on_refusal_();
    return;
  }
  for (const base::EventLoop::Callback& callback : std::exchange(waiting_, {})) callback();
}

}  // namespace dtrun::launcher
