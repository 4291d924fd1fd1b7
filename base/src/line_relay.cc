#include "dtrun/base/line_relay.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::base {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
// A line longer than this takes the sink for itself.
constexpr std::size_t kLongLine = 1 << 20;
// What a relay holds back at most while another has the sink.
constexpr std::size_t kPendingLimit = 2 << 20;
constexpr std::size_t kHighWater = 512 << 10;
constexpr std::size_t kLowWater = 64 << 10;
// A rank that stops in the middle of a very long line may be waiting for one whose output waits
// for that line: after this time the sink is given to the others.
constexpr auto kHolderPatience = std::chrono::seconds(1);

}  // namespace

OutputSink::OutputSink(EventLoop& loop, int fd)
    : loop_(loop), fd_(fd), holder_timer_(loop), scratch_(kReadBytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    broken_ = true;
    error_number_ = errno;
    return;
  }
  if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
    watch_readiness(fd);
  } else if (S_ISFIFO(status.st_mode) || ::isatty(fd)) {
    reopened_ = UniqueFd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                                O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (reopened_) {
      kind_ = Kind::kPollable;
      fd_ = reopened_.get();
    } else {  // another user's
      kind_ = Kind::kShared;
      watch_readiness(fd);
    }
  }
}

// Asio would set O_NONBLOCK, which everyone who shares the descriptor would see.
void OutputSink::watch_readiness(int fd) {
  readiness_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLOUT;
  if (::epoll_ctl(readiness_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw system_error("watch the standard output");
}

OutputSink::~OutputSink() {
  DT_CHECK(relays_.empty());
}

bool OutputSink::congested() const {
  return queue_.size() - sent_ >= kHighWater;
}

ssize_t OutputSink::write_once(const char* bytes, std::size_t size) const {
  if (kind_ == Kind::kSocket) return ::send(fd_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ == Kind::kShared) {
    // A pipe that polls as writable takes PIPE_BUF bytes without blocking.
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) {
      errno = EAGAIN;
      return -1;
    }
    size = std::min<std::size_t>(size, PIPE_BUF);
  }
  return ::write(fd_, bytes, size);
}

std::size_t OutputSink::write_some(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size() && !broken_) {
    const char* const at = bytes.data() + done;
    const std::size_t left = bytes.size() - done;
    const ssize_t n = write_once(at, left);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN && kind_ != Kind::kPlain) {
      return done;
    } else if (errno == EAGAIN) {
      // Somebody who shares the description made it non-blocking.
      pollfd writable{fd_, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      error_number_ = errno;
      broken_ = true;
    }
  }
  if (broken_) {
    lost_bytes_ += bytes.size() - done;
    done = bytes.size();
  }
  return done;
}

void OutputSink::put(std::string_view bytes) {
  if (idle()) bytes.remove_prefix(write_some(bytes));
  if (bytes.empty()) return;
  if (idle()) {
    queue_.clear();
    sent_ = 0;
  }
  queue_.append(bytes);
  if (!watch_) {
    watch_ = std::make_unique<FdWatch>(loop_, readiness_watched() ? readiness_.get() : fd_);
    if (readiness_watched()) {
      watch_->on_readable([this] { drain(); });
    } else {
      watch_->on_writable([this] { drain(); });
    }
  }
}

void OutputSink::drain() {
  sent_ += write_some(std::string_view(queue_).substr(sent_));
  if (queue_.size() - sent_ <= kLowWater) {
    queue_.erase(0, sent_);
    sent_ = 0;
    resume_relays();
  }
  if (!idle()) return;
  watch_.reset();
  if (on_idle_) on_idle_();
}

void OutputSink::abandon() {
  lost_bytes_ += queue_.size() - sent_;
  queue_.clear();
  sent_ = 0;
  broken_ = true;
  watch_.reset();
  resume_relays();
  if (on_idle_) on_idle_();
}

void OutputSink::hold(LineRelay* relay) {
  DT_CHECK(holder_ == nullptr || holder_ == relay);
  holder_ = relay;
  holder_moved_ = true;
}

void OutputSink::release(LineRelay* relay) {
  if (holder_ != relay) return;
  holder_ = nullptr;
  holder_timer_.cancel();
  resume_relays();
}

// The list may shrink meanwhile: a relay that ends here leaves it.
void OutputSink::resume_relays() {
  const std::vector<LineRelay*> relays = relays_;
  for (LineRelay* const relay : relays)
    if (std::find(relays_.begin(), relays_.end(), relay) != relays_.end()) relay->forward_pending();
}

void OutputSink::watch_holder() {
  holder_moved_ = false;
  holder_timer_.start(Deadline::after(kHolderPatience), [this] {
    if (holder_ == nullptr) return;
    if (holder_moved_ || congested()) {
      watch_holder();
    } else {
      release(holder_);
    }
  });
}

LineRelay::LineRelay(EventLoop& loop, UniqueFd source, OutputSink& sink, LineRelayOptions options,
                     EventLoop::Callback on_end)
    : loop_(loop),
      source_(std::move(source)),
      sink_(sink),
      options_(std::move(options)),
      on_end_(std::move(on_end)),
      watch_(std::make_unique<FdWatch>(loop_, source_.get())) {
  set_nonblocking(source_.get());
  sink_.relays_.push_back(this);
  update_interest();
}

LineRelay::~LineRelay() {
  std::erase(sink_.relays_, this);
  if (sink_.holder_ == this) sink_.release(this);
}

LineRelay::Read LineRelay::read_once() {
  std::vector<char>& buffer = sink_.scratch_;
  const ssize_t n = ::read(source_.get(), buffer.data(), buffer.size());
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Read::kNothing : Read::kEnd;
  if (n == 0) return Read::kEnd;
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
  if (bytes.size() >= kReadBytes / 2 && !large_pipe_) {
    // A stream that writes much wakes us less often with a larger pipe; refusal is no harm.
    large_pipe_ = true;
    ::fcntl(source_.get(), F_SETPIPE_SZ, 1 << 20);
  }
  keep_tail(bytes);
  if (pending_.empty()) {
    const std::size_t passed = forward(bytes);
    pending_.assign(bytes.substr(passed));
  } else {
    pending_.append(bytes);
    forward_pending();
  }
  return Read::kSome;
}

void LineRelay::on_readable() {
  if (read_once() == Read::kEnd) {
    source_ended_ = true;
    watch_.reset();
    reading_ = false;
    forward_pending();
  } else {
    update_interest();
  }
}

void LineRelay::finish() {
  if (ended_) return;
  // More than any pipe holds; a stray writer must not keep us here for ever.
  constexpr int kReads = (2 << 20) / kReadBytes;
  for (int i = 0; i < kReads && !source_ended_; ++i) {
    if (read_once() != Read::kSome) break;
  }
  source_ended_ = true;
  watch_.reset();
  reading_ = false;
  forward_pending();
}

std::size_t LineRelay::forward(std::string_view bytes) {
  if (blocked() || bytes.empty()) return 0;
  const bool through = source_ended_ || sink_.exclusive();
  const void* const newline = ::memrchr(bytes.data(), '\n', bytes.size());
  const std::size_t lines =
      newline == nullptr
          ? 0
          : static_cast<std::size_t>(static_cast<const char*>(newline) - bytes.data()) + 1;
  const bool holding = sink_.holder_ == this;
  const std::size_t rest = bytes.size() - lines;
  // Once a part of a line is out, its other parts follow as they come.
  const bool pass_rest = through || rest >= kLongLine || (holding && lines == 0);
  const std::size_t passed = pass_rest ? bytes.size() : lines;
  put(bytes.substr(0, passed));
  if (pass_rest && rest > 0 && !through) {
    sink_.hold(this);
  } else if (holding) {
    sink_.release(this);
  }
  return passed;
}

void LineRelay::forward_pending() {
  if (ended_) return;
  if (!pending_.empty()) {
    // Taken out first: passing on may release the sink, which comes back here.
    std::string bytes = std::move(pending_);
    pending_.clear();
    const std::size_t passed = forward(bytes);
    pending_ = passed == 0 ? std::move(bytes) : bytes.substr(passed);
  }
  if (ended_) return;
  if (source_ended_ && pending_.empty()) {
    end();
  } else {
    update_interest();
  }
}

void LineRelay::put(std::string_view bytes) {
  if (options_.tag.empty()) {
    sink_.put(bytes);
    return;
  }
  std::string tagged;
  tagged.reserve(bytes.size() + bytes.size() / 8 + options_.tag.size());
  while (!bytes.empty()) {
    if (at_line_start_) tagged += options_.tag;
    const auto newline = bytes.find('\n');
    const std::string_view line =
        newline == std::string_view::npos ? bytes : bytes.substr(0, newline + 1);
    tagged += line;
    at_line_start_ = newline != std::string_view::npos;
    bytes.remove_prefix(line.size());
  }
  sink_.put(tagged);
}

void LineRelay::keep_tail(std::string_view bytes) {
  if (options_.tail_bytes == 0) return;
  if (bytes.size() >= options_.tail_bytes) {
    tail_.assign(bytes.substr(bytes.size() - options_.tail_bytes));
    return;
  }
  if (tail_.size() + bytes.size() > 2 * options_.tail_bytes)
    tail_.erase(0, tail_.size() + bytes.size() - options_.tail_bytes);
  tail_.append(bytes);
}

void LineRelay::update_interest() {
  if (source_ended_) return;
  const bool held_up = blocked() && pending_.size() >= kPendingLimit;
  if (held_up && reading_) sink_.watch_holder();
  const bool read = !sink_.congested() && !held_up;
  if (read == reading_) return;
  reading_ = read;
  if (read) {
    watch_->on_readable([this] { on_readable(); });
  } else {
    watch_->on_readable(nullptr);
  }
}

void LineRelay::end() {
  ended_ = true;
  source_.reset();
  std::erase(sink_.relays_, this);
  if (sink_.holder_ == this) sink_.release(this);
  // By way of the loop: the callback may destroy this relay, which is still on the stack.
  loop_.post([on_end = on_end_] { on_end(); });
}

}  // namespace dtrun::base
