// RankStream: one stream of one rank, on its way to console and file. Either the rank writes
// straight into a file, or into a pipe that is relayed to a sink, and if wanted into a file as
// well. On the guard's EventLoop.
#pragma once

#include <memory>
#include <string>

#include "dtrun/base/line_relay.h"

namespace dtrun::launcher {

/// Bytes that did not get into a file.
struct FileLoss {
  std::uint64_t bytes = 0;  ///< 0 with an error: only the ranks know how many
  int error_number = 0;     ///< 0: nothing is lost
};

class RankStream {
 public:
  /// The rank has the file, for appending.
  explicit RankStream(base::UniqueFd file) : file_(std::move(file)) {}
  /// @param file may be none
  RankStream(base::EventLoop& loop, base::UniqueFd source, base::OutputSink& sink,
             base::LineRelayOptions options, base::UniqueFd file, base::EventLoop::Callback on_end);

  bool ended() const { return !relay_ || relay_->ended(); }
  void finish();
  /// Takes what the rank has written by now, as far as there is room for it.
  void read_waiting();
  /// The end of what the rank has written.
  std::string tail(std::size_t bytes) const;
  /// As far as it is known here: not for a file that the rank itself writes.
  FileLoss file_loss() const;
  /// Whether there is no room for more in the file that the rank writes into itself.
  bool disk_is_full() const;
  /// Called once, when bytes do not get into the file.
  void on_file_loss(std::function<void(int error_number)> callback);

 private:
  base::UniqueFd file_;  // of a rank that writes into it itself
  std::unique_ptr<base::StreamCopy> copy_;
  std::unique_ptr<base::LineRelay> relay_;
};

}  // namespace dtrun::launcher
