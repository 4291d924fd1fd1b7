// OomCounter: how many processes of this process's memory cgroup the kernel's OOM killer has ended,
// so that a SIGKILL can be told from others. Version 2 (memory.events, of the nearest cgroup
// upwards that counts memory) and version 1 (memory.oom_control), wherever they are mounted. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "ranks/own_cgroup.h"

namespace dtrun::launcher {

class OomCounter {
 public:
  /// Where nothing counts, nothing is ever claimed.
  explicit OomCounter(const OwnCgroup& own);

  /// Whether a process has been ended since the start that nobody has claimed yet; claims it.
  bool claim_one();
  /// The file that is read; empty: none.
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::int64_t claimed_ = 0;
};

}  // namespace dtrun::launcher
