// Console: one of this process's own streams, and how the ranks' lines look there: with tags, in
// colour, folded, as JSON. On the guard's EventLoop.
#pragma once

#include <chrono>
#include <string>

#include "dtrun/base/line_relay.h"
#include "options/line_tag.h"
#include "output/line_fold.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

/// Whose output it is.
struct OutputOrigin {
  int node_rank = 0;
  int rank = 0;
  int local_rank = 0;
};

class Console {
 public:
  Console(base::EventLoop& loop, int fd, const LaunchPlan& plan);

  base::OutputSink& sink() { return sink_; }
  const base::OutputSink& sink() const { return sink_; }
  Destination destination() const { return destination_; }

  /// Sets a relay's options for the lines of a stream on their way here.
  void prepare(OutputOrigin origin, Stream stream, base::LineRelayOptions& options);
  LineOrigin line_origin(OutputOrigin origin, Stream stream) const;
  LineTime now() const;
  /// Ends the wait of lines for identical ones.
  void end_folding();
  /// Whether nothing waits here.
  bool idle() const { return sink_.idle() && fold_.empty(); }

 private:
  using Bytes = base::LineRelayOptions::Bytes;

  // With --adopt this dtrun has one rank, and this is the engine's number for it.
  int first_local_rank() const;
  Bytes tagged(OutputOrigin origin, Stream stream);
  Bytes folded(OutputOrigin origin, Stream stream);
  Bytes json(OutputOrigin origin, Stream stream);
  std::string tag_text(const TagTemplate& tag, const LineOrigin& origin, int rank) const;
  void add_folded(const LineFold::Line& line);
  std::string tag_of_folded(const TagTemplate& tag, const LineFold::Line& line) const;
  void put_folded();
  void put_when_due();

  const LaunchPlan& plan_;
  base::OutputSink sink_;
  Destination destination_;
  std::string host_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  LineFold fold_;
  base::Timer fold_timer_;
  OutputOrigin first_;        // of the round whose lines are folded
  std::string folded_;        // lines that have waited long enough
  LineFold::Line tagged_;     // the line that was tagged last, without its text
  std::string folded_tag_;    // its tag
  bool tags_differ_ = false;  // though ranks and stream are the same
};

}  // namespace dtrun::launcher
