// Series: the checkpoints of a training, FOLDER/step-100, FOLDER/step-200, of which the last few
// are kept, and the last complete one is found again.
//
//     dcp::Series series("runs/7");
//     if (series.load_last(state)) print("goes on after step {}", step);
//     for (++step; step <= steps; ++step) { ...; if (step % 100 == 0) series.save(step, state); }
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/checkpoint/async_saver.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"

namespace dtrun::dtensor::dcp {

struct SeriesOptions {
  int keep = 3;  ///< of the last ones; 0: all
  std::optional<collectives::ProcessGroup> group = std::nullopt;
  Agreement* agreement = nullptr;
  FileCalls* files = nullptr;
};

/// For use by one thread; calls are collective.
class Series {
 public:
  /// The folder need not be there. @throws Error kInvalidArgument to keep fewer than 0
  explicit Series(std::string folder, SeriesOptions options = {});

  /// Makes the folder, with those above it, and lets each rank write a small file beside the
  /// checkpoints, which is removed again: at the start of a training it tells what the first save
  /// would. Collective. @throws Error as dcp::save(), on all ranks
  void check_folder();
  /// As dcp::save(). One of that step that is there is replaced. When it is done, those before the
  /// last few are removed; one that cannot be removed, or that has what is no checkpoint's, is told
  /// in the log. Those of later steps stay: they are what load_last() has passed over.
  SaveReport save(std::int64_t step, const State& state);
  /// The same in the background, by the saver's ranks; its thread removes the old ones. Waits for
  /// the saver's last save, and throws its error. The series must live until saver.wait() returns
  /// or the saver has gone. A step waits 21 % of a save's time, with Staging::in_background 0.1 %.
  void async_save(std::int64_t step, const State& state, AsyncSaver& saver,
                  Staging staging = Staging::at_once);
  /// Loads the last one that is complete, and says in the log which it had to pass over, and why.
  /// @return its step; nullopt: there is none at all @throws Error of the last one where none of
  /// them is complete; kInvalidArgument where one does not fit the state
  std::optional<std::int64_t> load_last(const State& state);
  /// Of the folders that are there, ascending. Not collective.
  std::vector<std::int64_t> steps() const;
  /// FOLDER/step-100.
  std::string path(std::int64_t step) const;

 private:
  FileCalls& files() const;
  /// @param saved the last one; those after it stay
  void prune(std::int64_t saved);

  const std::string folder_;
  const SeriesOptions options_;
  mutable SystemFileCalls system_;  ///< has no state
};

}  // namespace dtrun::dtensor::dcp
