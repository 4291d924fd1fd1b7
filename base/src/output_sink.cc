#include "dtrun/base/output_sink.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/line_relay.h"

namespace dtrun::base {
namespace {

constexpr std::size_t kScratchBytes = 64 << 10;
constexpr std::size_t kHighWater = 512 << 10;
constexpr std::size_t kLowWater = 64 << 10;
constexpr std::size_t kMostKeptBytes = 16 << 20;
constexpr std::size_t kUsualColumns = 80;
// A rank that stops in the middle of a very long line may be waiting for one whose output waits
// for that line: who has passed on less than this, in this time, gives the sink to the others.
constexpr auto kHolderPatience = std::chrono::seconds(1);
constexpr std::size_t kHolderBytes = 256 << 10;

}  // namespace

OutputSink::OutputSink(EventLoop& loop, int fd)
    : loop_(loop), fd_(fd), holder_timer_(loop), scratch_(kScratchBytes) {
  is_terminal_ = ::isatty(fd) == 1;
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    broken_ = true;
    error_number_ = errno;
    return;
  }
  if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
    watch_readiness(fd);
  } else if (S_ISFIFO(status.st_mode) || is_terminal_) {
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

bool OutputSink::keeps_a_lot() const {
  return kept_bytes_ >= kMostKeptBytes;
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
      fail(errno);
    }
  }
  if (broken_) {
    lost_bytes_ += bytes.size() - done;
    done = bytes.size();
  }
  return done;
}

void OutputSink::fail(int error_number) {
  error_number_ = error_number;
  broken_ = true;
  const bool reader_gone = error_number == EPIPE || error_number == ECONNRESET;
  if (reader_gone && on_reader_gone_) on_reader_gone_();
}

void OutputSink::put(std::string_view bytes) {
  if (bytes.empty()) return;
  if (footer_shown_) {
    clear_footer();
    if (on_footer_gone_) on_footer_gone_();
  }
  if (observer_) observer_(bytes);
  in_line_ = bytes.back() != '\n';
  if (!is_terminal_ || (!in_line_ && rows_.empty())) return queue(bytes);
  queue(rows_.put(writer_, bytes, columns()));
  in_line_ = !rows_.empty();
}

void OutputSink::end_line() {
  if (in_line_ && !is_terminal_) put("\n");
}

// How long a row may be so that it can be erased; 0: none can.
std::size_t OutputSink::columns() const {
  if (!control_codes_ || !may_erase()) return 0;
  winsize size{};
  const bool known = ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

void OutputSink::end_of(const LineRelay* writer) {
  queue(rows_.end(writer, columns()));
}

bool OutputSink::show_footer(std::string_view text) {
  if (!idle() || in_line_ || holder_ != nullptr || !may_erase()) return false;
  clear_footer();
  queue(text);
  footer_shown_ = true;
  return true;
}

void OutputSink::clear_footer() {
  if (!std::exchange(footer_shown_, false) || !may_erase()) return;
  queue("\r\x1b[K");
}

void OutputSink::queue(std::string_view bytes) {
  if (idle()) bytes.remove_prefix(write_some(bytes));
  if (bytes.empty()) return;
  if (idle()) {
    queue_.clear();
    sent_ = 0;
  }
  const bool before = congested();
  queue_.append(bytes);
  if (!before && congested() && on_congestion_) on_congestion_();
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

void OutputSink::hold(LineRelay* relay, std::size_t bytes) {
  DT_CHECK(holder_ == nullptr || holder_ == relay);
  holder_ = relay;
  held_bytes_ += bytes;
}

void OutputSink::release(LineRelay* relay) {
  if (holder_ != relay) return;
  holder_ = nullptr;
  holder_awaited_ = false;
  holder_timer_.cancel();
  resume_relays();
}

// The list may shrink meanwhile: a relay that ends here leaves it.
void OutputSink::resume_relays() {
  const std::vector<LineRelay*> relays = relays_;
  for (LineRelay* const relay : relays)
    if (std::find(relays_.begin(), relays_.end(), relay) != relays_.end()) relay->forward_pending();
}

void OutputSink::await_holder() {
  if (std::exchange(holder_awaited_, true)) return;
  held_bytes_ = 0;
  holder_timer_.start(Deadline::after(kHolderPatience), [this] {
    holder_awaited_ = false;
    // The queue waits for the reader of the descriptor, not for the relay that holds the sink.
    if (held_bytes_ >= kHolderBytes || !idle()) return await_holder();
    release(holder_);
  });
}

}  // namespace dtrun::base
