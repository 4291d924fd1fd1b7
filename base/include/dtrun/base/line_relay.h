// Relaying what many children write to one descriptor of ours: every byte arrives, in order per
// stream, and no line is interrupted by another stream's bytes, however long it is.
//
// OutputSink is the destination: it never blocks the loop on a pipe, a terminal or a socket, queues
// a bounded amount and makes its relays stop reading while it is congested. LineRelay is one
// stream: it forwards whole lines; a line longer than its buffer takes the sink for itself until
// its end. Both live on one EventLoop's thread; a sink must outlive its relays. A destination that
// fails (EPIPE, ENOSPC) swallows the rest, counts it, and keeps the first error; SIGPIPE must be
// ignored.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/event_loop.h"
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

  bool idle() const { return queue_.size() == sent_; }
  /// Called each time the queue has run empty.
  void on_idle(EventLoop::Callback callback) { on_idle_ = std::move(callback); }
  /// Forgets what is queued, and swallows what comes.
  void abandon();

  std::uint64_t lost_bytes() const { return lost_bytes_; }
  /// errno of the first failed write; 0: none.
  int error_number() const { return error_number_; }

 private:
  friend class LineRelay;

  // kShared: a pipe or terminal that could not be opened anew. It stays blocking for everyone, so
  // it is written to only as much as it is known to take.
  enum class Kind { kPlain, kPollable, kSocket, kShared };

  // Readable when `fd` is writable; leaves the flags of a descriptor that others share alone.
  void watch_readiness(int fd);
  bool readiness_watched() const { return kind_ == Kind::kSocket || kind_ == Kind::kShared; }
  ssize_t write_once(const char* bytes, std::size_t size) const;
  void put(std::string_view bytes);
  // How much of the bytes the destination takes now.
  std::size_t write_some(std::string_view bytes);
  void drain();
  bool congested() const;
  bool exclusive() const { return relays_.size() == 1; }
  void hold(LineRelay* relay);
  void release(LineRelay* relay);
  void resume_relays();
  void watch_holder();

  EventLoop& loop_;
  UniqueFd reopened_;
  UniqueFd readiness_;
  int fd_;
  Kind kind_ = Kind::kPlain;
  std::unique_ptr<FdWatch> watch_;
  Timer holder_timer_;
  EventLoop::Callback on_idle_;
  std::string queue_;
  std::size_t sent_ = 0;
  std::vector<LineRelay*> relays_;
  LineRelay* holder_ = nullptr;  // is in the middle of a long line
  bool holder_moved_ = false;
  std::vector<char> scratch_;
  std::uint64_t lost_bytes_ = 0;
  int error_number_ = 0;
  bool broken_ = false;
};

struct LineRelayOptions {
  std::string tag;             ///< put before every line
  std::size_t tail_bytes = 0;  ///< how much of the end of the stream tail() keeps
};

class LineRelay {
 public:
  /// @param on_end called once, when the stream has ended and its last byte is in the sink
  LineRelay(EventLoop& loop, UniqueFd source, OutputSink& sink, LineRelayOptions options,
            EventLoop::Callback on_end);
  ~LineRelay();
  LineRelay(const LineRelay&) = delete;
  LineRelay& operator=(const LineRelay&) = delete;

  bool ended() const { return ended_; }
  /// Takes what the pipe holds now and ends, though a writer may still hold the other end.
  void finish();
  const std::string& tail() const { return tail_; }

 private:
  friend class OutputSink;

  enum class Read { kSome, kNothing, kEnd };

  void on_readable();
  Read read_once();
  // Passes on what may go now of the bytes; returns how many.
  std::size_t forward(std::string_view bytes);
  void forward_pending();
  void put(std::string_view bytes);
  void keep_tail(std::string_view bytes);
  void update_interest();
  void end();
  bool blocked() const { return sink_.holder_ != nullptr && sink_.holder_ != this; }

  EventLoop& loop_;
  UniqueFd source_;
  OutputSink& sink_;
  LineRelayOptions options_;
  EventLoop::Callback on_end_;
  std::unique_ptr<FdWatch> watch_;
  std::string pending_;  // read, not yet passed on
  std::string tail_;
  bool at_line_start_ = true;
  bool reading_ = false;
  bool source_ended_ = false;
  bool ended_ = false;
  bool large_pipe_ = false;
};

}  // namespace dtrun::base
