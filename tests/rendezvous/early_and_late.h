// The two deadlines of most tests of stores: one that is not meant to pass, and one that is.
#pragma once

#include <chrono>

#include "dtrun/base/deadline.h"

namespace dtrun::rendezvous {

inline base::Deadline late() {
  return base::Deadline::after(std::chrono::seconds(60));
}
inline base::Deadline soon() {
  return base::Deadline::after(std::chrono::milliseconds(30));
}

}  // namespace dtrun::rendezvous
