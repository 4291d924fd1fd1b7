// StartedProcess: a process that mp has started, until its end is known. Shared by the Process that
// the user holds and the list that exit() goes through, possibly in two threads: thread-safe.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/unique_fd.h"
#include "hand_over.h"

namespace dtrun::mp {

class StartedProcess {
 public:
  struct Parts {
    pid_t pid = 0;
    base::UniqueFd pidfd;
    base::UniqueFd hand_over;
    /// Where the forkserver, whose child it is, tells its end; none for a child of this process.
    base::UniqueFd status_socket;
  };

  StartedProcess(std::string name, bool daemon, Parts parts);
  StartedProcess(const StartedProcess&) = delete;
  StartedProcess& operator=(const StartedProcess&) = delete;

  const std::string& name() const { return name_; }
  bool daemon() const { return daemon_; }
  pid_t pid() const { return parts_.pid; }
  /// Readable once it has ended; valid as long as this object.
  int end_fd() const;

  /// How it ended, if it did before the deadline. @throws Error kSystem when another part of the
  /// program has reaped it, so that nobody knows
  std::optional<base::ExitStatus> wait(base::Deadline deadline);
  /// Whether it ended before the deadline, also where nobody knows how.
  bool wait_for_end(base::Deadline deadline);
  /// To the process and its process group. Nothing happens when it has ended.
  void signal(int signal_number);
  /// Once it has ended.
  Outcome outcome();

 private:
  bool has_ended();

  const std::string name_;
  const bool daemon_;
  Parts parts_;
  std::mutex lock_;
  bool ended_ = false;
  std::optional<base::ExitStatus> status_;  // none after the end: reaped by somebody else
  std::optional<Outcome> outcome_;
};

}  // namespace dtrun::mp
