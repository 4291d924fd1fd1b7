// OutputSink: one descriptor of ours as the destination of many streams. It never blocks the loop
// on a pipe, a terminal or a socket, queues a bounded amount, and makes its relays (line_relay.h)
// stop reading while it is congested. A destination that fails (EPIPE, ENOSPC) swallows the rest,
// counts it, and keeps the first error; SIGPIPE must be ignored. Lives on one EventLoop's thread,
// and must outlive its relays. Why it is not Asio's: line_relay.h has the figures.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/terminal_rows.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

class LineRelay;

class OutputSink {
 public:
  /// Borrows `fd`. Pipes and terminals are opened anew, so that O_NONBLOCK stays ours alone.
  OutputSink(EventLoop& loop, int fd);
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  /// Queues the bytes that the destination does not take now.
  void put(std::string_view bytes);
  /// Sees all bytes that are put from now on.
  void observe(std::function<void(std::string_view)> observer) { observer_ = std::move(observer); }
  /// Ends an unfinished line, so that another can begin. (A terminal does so itself.)
  void end_line();
  bool idle() const { return queue_.size() == sent_; }
  /// Whether so much is queued that its relays wait.
  bool congested() const;
  /// Called each time the queue has run empty.
  void on_idle(EventLoop::Callback callback) { on_idle_ = std::move(callback); }
  /// Drops the queue and all bytes that come.
  void abandon();

  /// On a terminal: shows `text` in a line of its own below all others until something is written.
  /// false: not possible now: a line has not ended or waits, or the text could not be erased again.
  bool show_footer(std::string_view text);
  void clear_footer();
  /// Asked each time before the terminal's last line is erased: while this job is stopped or in the
  /// background, the line is another program's.
  void ask_before_erasing(std::function<bool()> may_erase) { may_erase_ = std::move(may_erase); }
  /// For a terminal without control codes: an unfinished line is ended when another one follows.
  void use_no_control_codes() { control_codes_ = false; }
  bool is_terminal() const { return is_terminal_; }
  /// Called when so much is queued that its relays wait.
  void on_congestion(EventLoop::Callback callback) { on_congestion_ = std::move(callback); }
  /// Called once, when a write has failed because nobody reads the pipe or socket any more.
  void on_reader_gone(EventLoop::Callback callback) { on_reader_gone_ = std::move(callback); }
  /// Called when other lines have taken the footer's place.
  void on_footer_gone(EventLoop::Callback callback) { on_footer_gone_ = std::move(callback); }

  std::uint64_t lost_bytes() const { return lost_bytes_; }
  /// errno of the first failed write; 0: none.
  int error_number() const { return error_number_; }

 private:
  friend class LineRelay;

  // kShared: a pipe or terminal that could not be opened anew. It stays blocking for everyone, so
  // it is written to only as much as it is known to take.
  enum class Kind { kPlain, kPollable, kSocket, kShared };

  // Readable when `fd` is writable. Does not change the flags of a descriptor that others share.
  void watch_readiness(int fd);
  bool readiness_watched() const { return kind_ == Kind::kSocket || kind_ == Kind::kShared; }
  ssize_t write_once(const char* bytes, std::size_t size) const;
  void queue(std::string_view bytes);
  std::size_t columns() const;
  bool may_erase() const { return !may_erase_ || may_erase_(); }
  void end_of(const LineRelay* writer);
  // How much of the bytes the destination takes now.
  std::size_t write_some(std::string_view bytes);
  void fail(int error_number);
  void drain();
  bool exclusive() const { return relays_.size() == 1; }
  // All relays together have a limit for what they hold back; this tells whether it is reached.
  bool keeps_a_lot() const;
  void hold(LineRelay* relay, std::size_t bytes);
  void release(LineRelay* relay);
  void resume_relays();
  // A relay has something that waits for the holder's line to end.
  void await_holder();

  EventLoop& loop_;
  UniqueFd reopened_;
  UniqueFd readiness_;
  int fd_;
  Kind kind_ = Kind::kPlain;
  std::unique_ptr<FdWatch> watch_;
  Timer holder_timer_;
  std::function<void(std::string_view)> observer_;
  EventLoop::Callback on_idle_;
  EventLoop::Callback on_footer_gone_;
  EventLoop::Callback on_congestion_;
  EventLoop::Callback on_reader_gone_;
  std::string queue_;
  std::size_t sent_ = 0;
  std::vector<LineRelay*> relays_;
  std::size_t kept_bytes_ = 0;   // by all of them, while they wait for a line's end or the holder's
  LineRelay* holder_ = nullptr;  // is in the middle of a long line
  std::size_t held_bytes_ = 0;   // passed on by it since it has been awaited
  bool holder_awaited_ = false;  // the timer runs
  std::vector<char> scratch_;
  std::vector<char> copy_scratch_;  // made when first needed
  bool is_terminal_ = false;
  bool control_codes_ = true;
  std::function<bool()> may_erase_;    // none: always
  TerminalRows rows_;                  // of a terminal
  const LineRelay* writer_ = nullptr;  // whose bytes are being put
  bool in_line_ = false;               // the last byte that was put ended no line
  bool footer_shown_ = false;
  std::uint64_t lost_bytes_ = 0;
  int error_number_ = 0;
  bool broken_ = false;
};

}  // namespace dtrun::base
