// FileWatch: sleeps until a file has been written to. Made once, then used by one thread at a time.
#pragma once

#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {

class FileWatch {
 public:
  /// By inotify(7). A word in a mapped file with a futex was the other way: PyTorch's processes
  /// would not wake it, and it would need a second file, as the first has records only.
  /// @param tells whether the file system tells of every change; if not, and where the user has no
  /// inotify instance left, await() returns every 50 ms
  enum class Tells { every_change, own_changes };
  FileWatch(int fd, Tells tells);

  /// Returns after a write since the last call, at the deadline, or for no reason.
  void await(base::Deadline deadline);

 private:
  base::UniqueFd inotify_;
  base::Deadline::Duration longest_sleep_;
};

}  // namespace dtrun::rendezvous
