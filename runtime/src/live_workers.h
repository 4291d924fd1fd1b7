// How many Workers this process has: a copy of it must not have any.
#pragma once

#include <atomic>

namespace dtrun::runtime {

/// A member of every Worker. Thread-safe.
class LiveWorker {
 public:
  LiveWorker() { ++count_; }
  ~LiveWorker() { --count_; }
  LiveWorker(const LiveWorker&) = delete;
  LiveWorker& operator=(const LiveWorker&) = delete;

  static int count() { return count_; }

 private:
  // Process-wide, as fork() is.
  inline static std::atomic<int> count_{0};
};

}  // namespace dtrun::runtime
