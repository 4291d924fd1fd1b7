#include "dtrun/base/line_relay.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dtrun/base/socket.h"

namespace dtrun::base {
namespace {

// A line longer than this takes the sink for itself.
constexpr std::size_t kLongLine = 1 << 20;
// Where the relays of a sink keep a lot between them.
constexpr std::size_t kLongLineInNeed = 4 << 10;
// What a relay holds back at most while another has the sink.
constexpr std::size_t kPendingLimit = 2 << 20;
// So many streams may have a pipe of 1 MiB: it is the kernel's memory, of which a user has little.
constexpr std::size_t kLargePipes = 16;
// How much is read from a copy before others get their turn.
constexpr std::size_t kCatchUpBytes = 1 << 20;
// On a terminal an unfinished line is shown after this time: too short for a person to notice, and
// longer than a program needs to write a line in several pieces.
constexpr auto kBeginningPatience = std::chrono::milliseconds(100);

// Cuts off an incomplete character at the end, because a piece of a line may be shown on its own.
std::size_t size_of_whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    if (byte >= 0xc0) return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

LineRelay::LineRelay(EventLoop& loop, UniqueFd source, OutputSink& sink, LineRelayOptions options,
                     EventLoop::Callback on_end)
    : loop_(loop),
      source_(std::move(source)),
      sink_(sink),
      options_(std::move(options)),
      on_end_(std::move(on_end)),
      watch_(std::make_unique<FdWatch>(loop_, source_.get())),
      catch_up_turn_(loop_),
      beginning_timer_(loop_) {
  set_nonblocking(source_.get());
  sink_.relays_.push_back(this);
  update_interest();
}

LineRelay::~LineRelay() {
  std::erase(sink_.relays_, this);
  sink_.kept_bytes_ -= counted_;
  if (sink_.holder_ == this) sink_.release(this);
  sink_.end_of(this);
}

LineRelay::Read LineRelay::read_once() {
  std::vector<char>& buffer = sink_.scratch_;
  const ssize_t n = ::read(source_.get(), buffer.data(), buffer.size());
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Read::kNothing : Read::kEnd;
  if (n == 0) return Read::kEnd;
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
  if (bytes.size() >= buffer.size() / 2 && !large_pipe_ && sink_.relays_.size() <= kLargePipes) {
    // A stream that writes much wakes us less often with a larger pipe; refusal is no harm.
    large_pipe_ = true;
    ::fcntl(source_.get(), F_SETPIPE_SZ, 1 << 20);
  }
  keep_tail(bytes);
  if (options_.observe) options_.observe(bytes);
  take(bytes);
  return Read::kSome;
}

void LineRelay::take(std::string_view bytes) {
  const std::size_t copied = options_.copy != nullptr ? options_.copy->append(bytes) : 0;
  if (!lagging_ && has_whole_copy() && (sink_.congested() || blocked())) start_lag(bytes.size());
  if (lagging_) {
    late_.append(bytes.substr(copied));
  } else if (pending_.empty()) {
    const std::size_t passed = forward(bytes);
    pending_.assign(bytes.substr(passed));
  } else {
    pending_.append(bytes);
    forward_pending();
  }
  await_rest();
}

void LineRelay::await_rest() {
  const bool wanted = options_.beginnings == LineRelayOptions::Beginnings::kAtOnce;
  if (!wanted || awaits_rest_ || ended_ || lagging_ || blocked() || sink_.congested() ||
      pending_.empty() || !sink_.is_terminal())
    return;
  awaits_rest_ = true;
  beginning_timer_.start(Deadline::after(kBeginningPatience), [this] {
    awaits_rest_ = false;
    beginning_due_ = true;
    forward_pending();
    beginning_due_ = false;
  });
}

// All that is held here is in the copy, too: nothing needs to be kept.
void LineRelay::start_lag(std::size_t unread) {
  lagging_ = true;
  copy_at_ = options_.copy->size() - unread - pending_.size();
  pending_.clear();
  pending_.shrink_to_fit();
}

void LineRelay::catch_up() {
  // Not scratch_: what that holds may be on its way through another relay, further down the stack.
  std::vector<char>& buffer = sink_.copy_scratch_;
  if (buffer.empty()) buffer.resize(sink_.scratch_.size());
  std::size_t done = 0;
  while (lagging_ && !sink_.congested() && !blocked()) {
    if (done >= kCatchUpBytes)
      return catch_up_turn_.start(Deadline::after(Deadline::Duration::zero()),
                                  [this] { forward_pending(); });
    // A sink that shows nothing any more need not read the copy.
    if (sink_.broken_ && !options_.copy->failed()) copy_at_ = options_.copy->size();
    const std::size_t n = options_.copy->read(copy_at_, buffer.data(), buffer.size());
    copy_at_ += n;
    done += n;
    pending_.append(buffer.data(), n);
    if (n == 0) {
      lagging_ = false;
      pending_ += late_;
      late_.clear();
    }
    forward_or_keep_pending();
  }
}

void LineRelay::on_readable() {
  // Another stream may have filled what all may keep since this one was watched.
  if (held_up()) return update_interest();
  if (read_once() == Read::kEnd) {
    source_ended_ = true;
    watch_.reset();
    reading_ = false;
    forward_pending();
  } else {
    update_interest();
  }
}

void LineRelay::read_all_waiting() {
  // More than any pipe holds; a stray writer must not keep us here for ever.
  const int reads = static_cast<int>((2 << 20) / sink_.scratch_.size());
  for (int i = 0; i < reads && !source_ended_; ++i) {
    if (read_once() != Read::kSome) break;
  }
}

void LineRelay::read_waiting() {
  if (!reading_) return;
  read_all_waiting();
  update_interest();
}

void LineRelay::finish() {
  if (ended_) return;
  read_all_waiting();
  source_ended_ = true;
  watch_.reset();
  reading_ = false;
  forward_pending();
}

std::size_t LineRelay::forward(std::string_view bytes) {
  if (blocked() || sink_.congested() || bytes.empty()) return 0;
  const bool at_once = options_.beginnings == LineRelayOptions::Beginnings::kAtOnce;
  const bool through =
      (source_ended_ && !lagging_) || (at_once && (sink_.exclusive() || beginning_due_));
  const void* const newline = ::memrchr(bytes.data(), '\n', bytes.size());
  const std::size_t lines =
      newline == nullptr
          ? 0
          : static_cast<std::size_t>(static_cast<const char*>(newline) - bytes.data()) + 1;
  const bool holding = sink_.holder_ == this;
  const std::size_t rest = bytes.size() - lines;
  // Once a part of a line is out, its other parts follow as they come.
  const bool pass_rest = through || rest >= long_line() || (holding && lines == 0);
  std::size_t passed = pass_rest ? bytes.size() : lines;
  if (pass_rest && !source_ended_) passed = size_of_whole_characters(bytes);
  put(bytes.substr(0, passed));
  if (pass_rest && rest > 0 && !through) {
    sink_.hold(this, passed);
  } else if (holding) {
    sink_.release(this);
  }
  return passed;
}

void LineRelay::forward_or_keep_pending() {
  if (pending_.empty()) return;
  // Taken out first: passing on may release the sink, which comes back here.
  std::string bytes = std::move(pending_);
  pending_.clear();
  forwarding_ = true;
  const std::size_t passed = forward(bytes);
  forwarding_ = false;
  pending_ = passed == 0 ? std::move(bytes) : bytes.substr(passed);
}

void LineRelay::forward_pending() {
  if (ended_ || forwarding_) return;
  forward_or_keep_pending();
  if (ended_) return;
  catch_up();
  if (source_ended_ && pending_.empty() && !lagging_) {
    end();
  } else {
    await_rest();
    update_interest();
  }
}

void LineRelay::put(std::string_view bytes) {
  if (sink_.broken_ && has_whole_copy()) return;  // not lost: it is in the copy
  sink_.writer_ = this;
  if (options_.put) {
    options_.put(bytes);
  } else {
    sink_.put(bytes);
  }
  sink_.writer_ = nullptr;
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

std::size_t LineRelay::long_line() const {
  return sink_.keeps_a_lot() ? kLongLineInNeed : kLongLine;
}

void LineRelay::count_kept() {
  sink_.kept_bytes_ += pending_.capacity() - counted_;
  counted_ = pending_.capacity();
}

bool LineRelay::held_up() const {
  return blocked() && !has_whole_copy() &&
         (pending_.size() >= kPendingLimit || sink_.keeps_a_lot());
}

void LineRelay::update_interest() {
  count_kept();
  if (blocked() && (!pending_.empty() || lagging_)) sink_.await_holder();
  if (source_ended_) return;
  // Bytes that would have to wait here can be read from the copy later.
  const bool read = has_whole_copy() || (!sink_.congested() && !held_up() && late_.empty());
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
  pending_.shrink_to_fit();
  count_kept();
  std::erase(sink_.relays_, this);
  if (sink_.holder_ == this) sink_.release(this);
  sink_.end_of(this);
  // By way of the loop: the callback may destroy this relay, which is still on the stack.
  loop_.post([on_end = on_end_] { on_end(); });
}

}  // namespace dtrun::base
