// OutputThread: Output on a thread of its own. When a write hangs in a file system or a terminal,
// only output stands still: the guard goes on to see ends, signals and orders. It waits for each
// answer of the thread only for a limited time. Belongs to the guard's EventLoop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "output/output.h"
#include "output/output_drain.h"

namespace dtrun::launcher {

/// The rank's ends of its streams.
struct RankEnds {
  base::UniqueFd in = {};  ///< none: it has no pipe of its own
  base::UniqueFd out = {};
  base::UniqueFd err = {};
};

class OutputThread {
 public:
  OutputThread(base::EventLoop& loop, const LaunchPlan& plan);
  ~OutputThread();
  OutputThread(const OutputThread&) = delete;
  OutputThread& operator=(const OutputThread&) = delete;

  /// The streams of the ranks added so far belong to a round that is over: those that wait for a
  /// slow reader still pass on what they have.
  /// Where a later round's folder or file cannot be made in time, the output is shown instead, and
  /// that is a file loss. @throws Error kSystem, kTimeout in the first round
  void begin_round(const LogFolder& folder, int round);
  /// The streams of the next local rank of the round. @throws Error kSystem
  RankEnds add(OutputOrigin origin);
  /// Called once, when something cannot be written into the log files any more.
  void on_file_loss(std::function<void(const std::string&)> callback);
  /// As Output::on_reader_gone(), but on the guard's loop.
  void on_reader_gone(base::EventLoop::Callback callback);

  /// Tells those that read along (AttachedReaders) how the job has ended. No round follows.
  void end_readers(int exit_code);

  /// Removes what is not kept, some time later: file systems can take milliseconds. No round
  /// follows.
  void remove(const LogFolder& folder);

  /// Writes a whole file, and its folder where there is none, before what is asked for later.
  /// @param content made on the output's thread
  /// @param on_end on the guard's loop, with the reason of a failure; empty: it is written
  void write_file(const std::string& path, std::function<std::string()> content,
                  std::function<void(const std::string&)> on_end);

  void show_status(const StatusFacts& facts);
  void hide_status();
  /// The same, and waits until it is gone, where the terminal takes it.
  void hide_status_now();

  /// The last lines of what the round's rank has written to its standard error by now.
  std::string error_tail(int local_rank);
  /// If the thread does not answer: nothing is passed on, and an unknown part is lost.
  OutputState state();

  /// OutputFlush's part: OutputDrain on the thread. One at a time; the last counts.
  void drain(base::Deadline::Duration grace, OutputDrain::Patience patience,
             base::EventLoop::Callback on_end);
  void set_patience(OutputDrain::Patience patience);
  void end_drain();
  /// Waits for the thread no more: its output counts as lost.
  void give_up() { given_up_ = true; }

 private:
  struct Shared;
  using Work = std::function<void(Output&)>;

  static void run(const std::shared_ptr<Shared>& shared, const LaunchPlan& plan);
  // Done in the order in which it was posted, whenever the thread comes to it.
  void post(Work work);
  // Waits for the thread to do it. False: it has not in time, and will not begin it any more.
  bool ask(base::Deadline::Duration patience, Work work);
  std::vector<StreamFile> make_files(const LogFolder& folder, int round);
  base::UniqueFd add_stream(OutputOrigin origin, Stream stream);
  void post_added();
  void lose_files(const std::string& why);

  struct Request;
  struct Added {
    OutputOrigin origin;
    Stream stream;
    StreamFile file;
    base::UniqueFd source;
  };

  const LaunchPlan& plan_;
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Request> unanswered_;  // it waits for something still
  std::vector<StreamFile> files_;        // of the round's streams: out and err of each local rank
  base::UniqueFd private_folder_;        // held as long as this process lives
  std::vector<Added> added_;             // not posted yet
  std::function<void(const std::string&)> on_file_loss_;
  int rounds_ = 0;
  bool any_streams_ = false;  // ever; without, there is nothing to wait for
  bool given_up_ = false;
  bool files_lost_ = false;  // in a way that Output knows nothing of
};

}  // namespace dtrun::launcher
