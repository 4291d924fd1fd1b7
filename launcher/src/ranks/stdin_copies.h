// StdinCopies: --stdin=all: a copy of this process's standard input for each rank of a round. It is
// read on only once all ranks have taken what was read before, so the slowest sets the pace, and 64
// KiB are kept at the most. A rank that closes its end is left out; without any rank nothing is
// read. A thread does it, because files and terminals cannot be watched by a loop alike. Belongs to
// the guard; SIGPIPE must be ignored.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

class StdinCopies {
 public:
  /// @param may_read where the standard input is a terminal: asked by the thread before it reads.
  /// While the shell has the terminal, the keys are the shell's
  explicit StdinCopies(std::function<bool()> may_read) : may_read_(std::move(may_read)) {}
  ~StdinCopies();
  StdinCopies(const StdinCopies&) = delete;
  StdinCopies& operator=(const StdinCopies&) = delete;

  /// The ranks' ends of new pipes. They take the place of those of the round before: what was
  /// read for those is not given again. @throws Error kSystem
  std::vector<base::UniqueFd> open(int ranks);

 private:
  struct Shared;
  class Pump;
  std::function<bool()> may_read_;
  std::shared_ptr<Shared> shared_;  // none: nobody has wanted copies yet
};

}  // namespace dtrun::launcher
