// PidNamespace: the ranks' process numbers are their own, and the kernel ends all that has one with
// the first of them, the guard: nothing can detach itself. Made by the keeper; the guard is the
// first child that it forks then.
#pragma once

#include <sys/types.h>

#include <string>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

class PidNamespace {
 public:
  /// Children of this process, which has one thread, are born into it from now on: the first is its
  /// init, and after that one's end there can be none. Where this is not for the caller to do, a
  /// user namespace is made first, in which user and group have the same numbers, and no others.
  /// @throws Error kUnavailable
  static PidNamespace make();

  /// In its first process: mounts of its own, with a /proc that shows it. @throws Error
  /// kUnavailable
  void enter() const;
  /// The number by which processes outside of the namespace know the process of this pidfd; 0 if it
  /// cannot be found out. May be called only once /proc is the namespace's own.
  pid_t number_outside(int pidfd) const;
  std::string describe() const;

 private:
  enum class Right { kOwn, kOfUserNamespace };
  PidNamespace(base::UniqueFd outer_proc, Right right)
      : outer_proc_(std::move(outer_proc)), right_(right) {}

  base::UniqueFd outer_proc_;
  Right right_;
};

}  // namespace dtrun::launcher
