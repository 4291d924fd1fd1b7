// LogFolder: the files of a run, in torchrun's layout:
// <log_dir>/<rdzv_id>_<random>/attempt_<round>/<local rank>/{stdout.log,stderr.log,error.json}. It
// stays where --log_dir, --redirects or --tee ask for it. Else there is only a private folder of
// error files, which the agent, or the guard where the agent is dead, removes at the end. No round
// removes another round's files or writes to them.
//
// Folders are the user's alone (0700). Links in their place are refused: below log_dir no step
// follows a link.
#pragma once

#include <filesystem>
#include <string>

#include "dtrun/base/unique_fd.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

/// One round's folder, held open, so that files are made in it and not in another folder of its
/// name. None if the run keeps no files.
class AttemptFolder {
 public:
  AttemptFolder() = default;
  AttemptFolder(base::UniqueFd folder, std::string path)
      : folder_(std::move(folder)), path_(std::move(path)) {}

  bool exists() const { return folder_.valid(); }
  /// New, for reading and appending. @throws Error kSystem
  base::UniqueFd make_stream_file(int local_rank, Stream stream) const;
  /// filtered_stdout.log, filtered_stderr.log. @throws Error kSystem
  base::UniqueFd make_filtered_file(Stream stream) const;

 private:
  base::UniqueFd folder_;
  std::string path_;
};

class LogFolder {
 public:
  /// Only names the folder: agent and guard must both know the name before it exists, because else
  /// a folder could be left behind that nobody knows. @throws Error kUsage where log_dir cannot be
  /// one, or the trace's file is a folder
  static LogFolder choose(const LaunchPlan& plan);

  /// The guard's part, before each round, where files are kept; else none. @throws Error kSystem
  AttemptFolder make(int round) const;
  /// The guard's part, before each round, where no files are kept; else nothing. The folder counts
  /// as abandoned when what holds it is closed. @throws Error kSystem
  base::UniqueFd make_private() const;

  /// Where the rank puts its error.json; empty: nowhere.
  std::string file_of(int round, int local_rank) const;
  /// Where this node's flight record of the round goes; empty: nowhere.
  std::string flight_file(int round, int node) const;
  /// Where this node's trace of the round goes: trace.json, trace.round1.json for a later round,
  /// trace.node1.json where there are several nodes; empty: nowhere.
  std::string trace_file(int round, int node) const;
  /// Whether the files outlive the job.
  bool kept() const { return kept_; }
  const std::string& path() const { return folder_; }
  /// Nothing happens when the folder is kept, or gone.
  void remove() const;

 private:
  std::string root_;    // holds the folders of runs
  std::string folder_;  // of this run; empty: files are not wanted
  bool root_is_temporary_ = false;
  std::string flight_root_;  // of flight records; empty: in the folder of a round, if it is kept
  bool flights_wanted_ = true;
  std::filesystem::path trace_;  // empty: nothing is traced
  bool has_nodes_ = false;
  bool kept_ = false;
  int local_ranks_ = 0;
};

/// As much of a job's name as may stand in a file's: 64 letters, digits, '.', '_' and '-' at the
/// most, others as '_', and no dot in front.
std::string file_name_of(const std::string& run_id);

}  // namespace dtrun::launcher
