// Ranks as processes: forked from the test, each with its own ProcessGroup over one TCP store. The
// test can stop and kill them, and play the launcher's guard with a job page.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/job_page.h"
#include "support/rank_threads.h"

namespace dtrun::test {

class RankProcesses {
 public:
  enum class Guard { none, job_page };

  /// Forks at once; call with no other threads around.
  RankProcesses(int size, const RankOptions& options, Guard guard, const RankBody& body);
  /// Kills and reaps what is left.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  void signal(int rank, int number) const;
  /// For a rank that stops itself, if it does not end before: lets it go on when it has stopped.
  void continue_stopped(int rank) const;
  /// Waits until the rank has begun its n-th operation and is in one, however short.
  void await_operation(int rank, std::uint64_t n) const;
  /// Kills the rank in the middle of its n-th operation or a later one: it is stopped, and killed
  /// if it was in one then.
  void kill_in_operation(int rank, std::uint64_t n) const;
  const rendezvous::JobPage& job_page() const { return *job_page_; }

  struct Ended {
    int status = 0;  ///< waitpid's
    std::optional<Thrown> thrown;
  };
  /// Waits for the rank's end. With a job page, a death by signal aborts the job, as the guard
  /// does.
  Ended wait(int rank);

 private:
  /// Returns waitid's code.
  int await_stop_or_end(int rank) const;
  /// By SIGSTOP; returns when it has stopped.
  void stop(int rank) const;
  [[noreturn]] void run_rank(int rank, int size, const RankOptions& options, const RankBody& body);

  std::shared_ptr<rendezvous::JobPage> job_page_;
  std::vector<pid_t> pids_;
  std::vector<base::UniqueFd> ports_;    ///< each rank learns the store's port here
  std::vector<base::UniqueFd> results_;  ///< and says here what it threw
  base::UniqueFd own_port_;
  base::UniqueFd own_result_;
  std::unique_ptr<base::EventLoop> loop_;
  std::thread store_thread_;
};

}  // namespace dtrun::test
