// Relays what many children write to one descriptor: every byte arrives, in order per stream, and
// no line is interrupted by another stream's bytes, however long it is. Own code, because Asio and
// Boost.Process pass on bytes, not lines. It moves 1,122 MB/s of 80-byte lines, 0.66 of what cat
// does; torchrun's tee moves 12 (docs/benchmarks.md).
//
// LineRelay is one stream: it forwards whole lines to an OutputSink. A line longer than its buffer
// reserves the sink until the line ends. While the sink is congested, the stream is not read and
// its writer waits; a stream with a StreamCopy is read on and forwarded later from the copy. Lives
// on the sink's EventLoop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/output_sink.h"
#include "dtrun/base/stream_copy.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

struct LineRelayOptions {
  using Bytes = std::function<void(std::string_view)>;
  /// When the beginning of a line (a prompt, a progress bar) is passed on: at once by the only
  /// stream of a sink, and soon by several of a terminal; or with the rest of the line.
  enum class Beginnings { kAtOnce, kWithTheRest };

  std::size_t tail_bytes = 0;  ///< how much of the end of the stream tail() keeps
  Bytes put = {};              ///< passes bytes to the sink; none: they go there unchanged
  Bytes observe = {};          ///< sees all bytes when they are read
  StreamCopy* copy = nullptr;  ///< borrowed; gets all bytes when they are read
  Beginnings beginnings = Beginnings::kAtOnce;
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
  /// Takes the bytes in the pipe and ends, though a writer may still hold the other end.
  void finish();
  /// Takes the bytes in the pipe, unless the stream has to wait: for tail().
  void read_waiting();
  const std::string& tail() const { return tail_; }

 private:
  friend class OutputSink;

  enum class Read { kSome, kNothing, kEnd };

  void on_readable();
  void read_all_waiting();
  Read read_once();
  void take(std::string_view bytes);
  // Passes on what may go now of the bytes; returns how many.
  std::size_t forward(std::string_view bytes);
  void forward_pending();
  void forward_or_keep_pending();
  void await_rest();
  void start_lag(std::size_t unread);
  void catch_up();
  void put(std::string_view bytes);
  void keep_tail(std::string_view bytes);
  void count_kept();
  std::size_t long_line() const;
  bool held_up() const;
  void update_interest();
  void end();
  bool blocked() const { return sink_.holder_ != nullptr && sink_.holder_ != this; }
  bool has_whole_copy() const { return options_.copy != nullptr && !options_.copy->failed(); }

  EventLoop& loop_;
  UniqueFd source_;
  OutputSink& sink_;
  LineRelayOptions options_;
  EventLoop::Callback on_end_;
  std::unique_ptr<FdWatch> watch_;
  Timer catch_up_turn_;
  Timer beginning_timer_;
  std::string pending_;      // read, not yet passed on
  std::size_t counted_ = 0;  // of it, in the sink's sum
  std::string tail_;
  // While it lags, the copy's bytes from copy_at_ on come after pending_, and late_, which is in no
  // copy any more, after those.
  std::string late_;
  std::uint64_t copy_at_ = 0;
  bool lagging_ = false;
  bool forwarding_ = false;
  bool reading_ = false;
  bool source_ended_ = false;
  bool ended_ = false;
  bool large_pipe_ = false;
  bool awaits_rest_ = false;    // the timer runs
  bool beginning_due_ = false;  // the rest of a line has not come in time
};

}  // namespace dtrun::base
