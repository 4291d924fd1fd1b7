// SpareFd: a descriptor in reserve for when the process has no other left. Given up for a moment,
// it lets the process accept a connection from a listening socket, which would else stay readable
// for ever. Not thread-safe.
#pragma once

#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

class SpareFd {
 public:
  /// @throws Error kSystem
  SpareFd();

  /// Runs use() while there is one descriptor more. False: the descriptor could not be taken back,
  /// because another thread was faster, and use() may have found none; the next call tries anew.
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
