// PrivateMachine: a network and a /dev/shm of this process's own and its children's, so that every
// socket and every file there is of what it has started, whatever its name. As root.
#pragma once

#include <chrono>
#include <string>

namespace dtrun::launcher {

class PrivateMachine {
 public:
  /// For the rest of this process, which has one thread; once. Does nothing without root's rights.
  static void move_to_one();
  /// Which sockets and files there are, when it is still so after the limit; "" where nothing was
  /// moved to.
  static std::string left_within(std::chrono::milliseconds limit);
};

}  // namespace dtrun::launcher
