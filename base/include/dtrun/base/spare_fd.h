// SpareFd: a descriptor kept for when the process has no other left. Given up for a moment it lets
// a connection be taken off a listening socket, which would else stay readable for ever. Not
// thread-safe.
#pragma once

#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

class SpareFd {
 public:
  /// @throws Error kSystem
  SpareFd();

  /// Has use() run while there is one descriptor more. False: it was not to be had again, because
  /// another thread was faster, and use() may have found none; the next call tries anew.
  template <typename Use>
  bool lend(const Use& use) {
    fd_.reset();
    use();
    fd_ = make();
    return fd_.valid();
  }

 private:
  static UniqueFd make();

  UniqueFd fd_;
};

}  // namespace dtrun::base
