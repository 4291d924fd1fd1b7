// FullTable: this process's table of descriptors while a test keeps all but a few of them, for
// both ends of its connections come from the same one. Given back at its end, with the limit.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {

class FullTable {
 public:
  /// @param left how many can still be had
  explicit FullTable(int left) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = base::UniqueFd(::fcntl(0, F_DUPFD_CLOEXEC, 0)).get();  // closed at once
    const rlimit low{static_cast<rlim_t>(next) + 20, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    leave(left);
  }
  ~FullTable() {
    taken_.clear();
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0);
  }
  FullTable(const FullTable&) = delete;
  FullTable& operator=(const FullTable&) = delete;

  /// So many can be had, whatever was closed meanwhile.
  void leave(int left) {
    for (int fd; (fd = ::fcntl(0, F_DUPFD_CLOEXEC, 0)) >= 0;) taken_.emplace_back(fd);
    give(left);
  }
  /// So many more.
  void give(int more) {
    for (int i = 0; i < more; ++i) taken_.pop_back();
  }

 private:
  rlimit before_{};
  std::vector<base::UniqueFd> taken_;
};

}  // namespace dtrun::rendezvous
