// Output: passes the output of this node's ranks to files and to this process's standard output and
// error. Lines come whole and in order per stream; each rank's last error lines are kept. In the
// guard, on the EventLoop of the thread that OutputThread gives it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "output/attached_readers.h"
#include "output/console.h"
#include "output/line_filter.h"
#include "output/log_folder.h"
#include "output/rank_stream.h"
#include "output/status_line.h"

namespace dtrun::launcher {

/// Where a stream goes, and its file, if it has one.
struct StreamFile {
  StreamPlan plan;
  base::UniqueFd file;
};

/// The state of the output at the end of a round or of the job.
struct OutputState {
  bool all_out = false;          ///< all streams have ended, and all they brought is passed on
  std::uint64_t lost_bytes = 0;  ///< neither shown nor in a file
  int error_number = 0;          ///< of the first failed write to our own output
  FileLoss file_loss;            ///< of what was to be in the log files, of all rounds
  /// The last lines of what each local rank wrote to its standard error.
  std::vector<std::string> error_tails;
};

/// The lowest number of descriptors that stay in this process. Lower ones are for those that ranks
/// inherit: a child copies the table of descriptors up to the highest that it inherits.
inline constexpr int kFirstDescriptorToKeep = 32;

/// How the report of Python's faulthandler begins, which the end of a rank's standard error has
/// whole.
inline constexpr std::string_view kPythonFault = "Fatal Python error: ";

/// /dev/null, opened for writing. @throws Error kSystem
base::UniqueFd open_null();
/// For the operator, when the log files get no more.
std::string file_loss_text(const std::string& why);

class Output {
 public:
  Output(base::EventLoop& loop, const LaunchPlan& plan);

  /// The streams of the ranks added so far belong to a round that is over: those that wait for a
  /// slow reader still pass on what they have.
  void begin_round();
  /// Files for standard output and error of each of the round's ranks. Where a later round's file
  /// cannot be made, the output is shown instead, and that is a file loss.
  /// @throws Error kSystem in the first round
  std::vector<StreamFile> make_files(const LogFolder& folder, int round);
  /// The next stream of the round.
  /// @param source the pipe to read; none: the rank has the file itself, or its output is dropped
  void add(OutputOrigin origin, Stream stream, StreamFile file, base::UniqueFd source);
  /// Called at the end of each stream.
  void on_stream_end(base::EventLoop::Callback callback) { on_stream_end_ = std::move(callback); }
  /// Called once, when something cannot be written into the log files any more.
  void on_file_loss(std::function<void(const std::string&)> callback) {
    on_file_loss_ = std::move(callback);
  }

  /// Called once, when the ranks' lines cannot be written to standard output because nobody reads
  /// it any more.
  void on_reader_gone(const base::EventLoop::Callback& callback) {
    out_->sink().on_reader_gone(callback);
  }

  /// Those that read along, of all rounds.
  AttachedReaders& readers() { return readers_; }

  void show_status(const StatusFacts& facts);
  void hide_status();

  /// All streams, of all rounds, have ended, and all they brought is in the sinks.
  bool ended() const;
  /// The sinks have passed on all they have.
  bool idle() const;
  void on_idle(const base::EventLoop::Callback& callback);
  /// Streams wait for a sink that has not passed on what it has.
  bool congested() const;
  void on_congestion(const base::EventLoop::Callback& callback);
  /// Takes what the pipes hold and ends the streams.
  void finish();
  /// Takes what the round's ranks have written to their standard errors, for error_tail().
  void finish_errors();
  /// Drops the output that is still to be written.
  void abandon();

  /// The last lines of what the round's rank has written to its standard error by now.
  std::string error_tail(int local_rank);
  OutputState state();

 private:
  using Streams = std::vector<std::unique_ptr<RankStream>>;

  void add_relay(OutputOrigin origin, Stream stream, StreamFile file, base::UniqueFd source);
  StreamFile make_file(int local_rank, Stream stream);
  void lose_files(const base::Error& error);
  base::OutputSink& silence();
  void make_filtered_files();
  std::shared_ptr<LineFilter> filter(OutputOrigin origin, Stream stream);
  void on_end();
  void tell_file_loss(const std::string& why);
  Console& console_of(Stream stream) { return stream == Stream::kOut || !error_ ? *out_ : *error_; }
  bool all_in_files() const;
  std::uint64_t lost_bytes() const;
  int error_number() const;
  FileLoss file_loss() const;

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  AttachedReaders readers_;
  std::unique_ptr<Console> out_;
  std::unique_ptr<Console> error_;      // none: both go to the same place, through one console
  std::unique_ptr<StatusLine> status_;  // none: it is not wanted, or there is no terminal
  base::UniqueFd null_;
  std::unique_ptr<base::OutputSink> silence_;      // of streams that are read and not shown
  std::shared_ptr<base::StreamCopy> filtered_[2];  // of the round, by Stream
  AttemptFolder folder_;
  int rounds_ = 0;        // begun
  Streams streams_;       // out and err of each local rank
  Streams past_streams_;  // of rounds before
  FileLoss past_loss_;    // of those that are gone
  bool file_loss_told_ = false;
  base::EventLoop::Callback on_stream_end_;
  std::function<void(const std::string&)> on_file_loss_;
};

}  // namespace dtrun::launcher
