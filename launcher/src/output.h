// Output: what the ranks of this node write, on its way to this process's standard output and
// error. Lines come whole and in order per stream; each rank's last error lines are kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/line_relay.h"
#include "launch_plan.h"

namespace dtrun::launcher {

/// Whose output it is, for its tag.
struct OutputOrigin {
  int node_rank = 0;
  int rank = 0;
};

class Output {
 public:
  Output(base::EventLoop& loop, const LaunchPlan& plan);

  /// The streams of the ranks added so far belong to a round that is over: those that wait for a
  /// slow reader still pass on what they have.
  void begin_round();
  /// The streams of the next local rank of the round.
  void add(OutputOrigin origin, base::UniqueFd out, base::UniqueFd err);
  /// Called at the end of each stream.
  void on_stream_end(base::EventLoop::Callback callback) { on_stream_end_ = std::move(callback); }

  /// All streams, of all rounds, have ended, and all they brought is in the sinks.
  bool ended() const;
  /// The sinks have passed on all they have.
  bool idle() const;
  void on_idle(const base::EventLoop::Callback& callback);
  /// Takes what the pipes hold and ends the streams.
  void finish();
  /// Drops what is still to be written.
  void abandon();

  /// The last lines of what the round's rank wrote to its standard error.
  std::string error_tail(int local_rank) const;
  std::uint64_t lost_bytes() const;
  int error_number() const;

 private:
  using Relays = std::vector<std::unique_ptr<base::LineRelay>>;

  void relay(base::UniqueFd source, base::OutputSink& sink, base::LineRelayOptions options);
  base::OutputSink& error_sink() { return error_ ? *error_ : *out_; }
  std::string tag(OutputOrigin origin, int fd) const;

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  std::unique_ptr<base::OutputSink> out_;
  std::unique_ptr<base::OutputSink> error_;  // none: both go to the same place, through one sink
  Relays relays_;                            // out and err of each local rank
  Relays past_relays_;                       // of rounds before
  base::EventLoop::Callback on_stream_end_;
};

}  // namespace dtrun::launcher
