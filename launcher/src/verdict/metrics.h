// Metrics: --metrics-port, what Prometheus is told of the job on this node. Counters count from
// this dtrun's start. The text is of the exposition format, version 0.0.4. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/job_page.h"
#include "plan/launch_plan.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

class Metrics {
 public:
  using Clock = std::chrono::system_clock;

  /// @param plan must live longer
  explicit Metrics(const LaunchPlan& plan);

  void round_began(const JobOutcome& outcome, int world_size);
  /// All ranks of this node run. @param page where they tell of their collectives; may be none
  void ranks_started(const JobOutcome& outcome, const Spawned& spawned, base::UniqueFd page);
  void rank_gone(const RankGone& gone) { up_[gone.local_rank] = false; }
  void rank_ended(const RankEnd& end);
  void failed(const rendezvous::rounds::JobFailure& failure);
  void round_ended(const JobOutcome& outcome);

  /// Also of this process, by the names that all of Prometheus's clients use.
  std::string text() const;

 private:
  enum class Cause { kRank, kNode };
  /// Exit code and signal.
  using End = std::pair<int, int>;

  void tell_job(std::string& text) const;
  void tell_ranks(std::string& text) const;
  /// The page of a round, after that of the round before.
  void watch(const base::UniqueFd& page);
  void tell_collectives(std::string& text) const;
  void tell_process(std::string& text) const;

  const LaunchPlan& plan_;
  double start_time_ = 0;  ///< of this process, since the epoch
  int node_ = -1;          ///< -1: its number has not been given out
  int round_ = -1;
  int first_rank_ = 0;
  int first_local_rank_ = 0;
  int world_size_ = 0;
  int restarts_ = 0;
  std::int64_t rounds_ = 0;
  std::int64_t starts_ = 0;
  std::int64_t out_of_memory_ = 0;
  std::uint64_t lost_output_bytes_ = 0;
  std::uint64_t lost_file_bytes_ = 0;
  std::optional<Clock::time_point> round_start_;
  std::optional<std::chrono::nanoseconds> start_duration_;  ///< of the last round whose ranks ran
  std::map<End, std::int64_t> ends_;
  std::map<Cause, std::int64_t> failures_;
  struct Communication {
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
  };
  std::optional<rendezvous::JobPage> page_;     ///< of the round that began last
  std::map<int, Communication> rounds_before_;  ///< by local rank
  std::map<int, bool> up_;                      ///< by local rank, of the round that began last
};

}  // namespace dtrun::launcher
