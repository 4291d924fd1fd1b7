// GroupFailure: why a group failed, as it travels to the other members, in whichever way a backend
// has. A value.
#pragma once

#include <cstddef>
#include <string>

#include "dtrun/base/error.h"

namespace dtrun::collectives {

struct GroupFailure {
  base::Error error;
  int failed_rank = -1;  ///< global; -1: nobody in particular

  static constexpr std::size_t kLongestText = 64 << 10;
  std::string encode() const;
  /// What is missing of a text that was cut off is empty.
  static GroupFailure decode(const std::string& text);
};

}  // namespace dtrun::collectives
