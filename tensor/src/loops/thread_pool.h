// ThreadPool: runs the chunks of a loop on the calling thread and its workers. Each calling thread
// has its own pool, because ranks may be threads and must not wait for each other's loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "dtrun/tensor/shapes_only.h"

namespace dtrun::tensors {

/// A loop over [0, count) in chunks of `grain`: chunk i is [i * grain, min(count, (i+1) * grain)),
/// independent of the number of threads.
struct ChunkedLoop {
  using Body = void (*)(void* context, std::int64_t begin, std::int64_t end);
  Body body;
  void* context;
  std::int64_t count;
  std::int64_t grain;

  std::int64_t chunks() const { return (count + grain - 1) / grain; }
  void run_chunk(std::int64_t chunk) const {
    const std::int64_t begin = chunk * grain;
    body(context, begin, begin + grain < count ? begin + grain : count);
  }
};

class ThreadPool {
 public:
  /// @param threads the caller included
  explicit ThreadPool(int threads);
  /// Joins the idle workers.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The number of threads that was asked for.
  int threads() const { return threads_; }
  /// Returns when all chunks are done. Each thread starts with the same share of the chunks in
  /// every loop of this size, so that its cache may still hold the elements; a thread that is done
  /// takes chunks of other shares. If chunks throw, the exception of the lowest chunk is rethrown;
  /// later chunks may not have run.
  void run(const ChunkedLoop& loop);

 private:
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  void work(std::size_t own);
  void run_chunks(std::size_t own);
  void run_share(Share& share);
  void note_failure(std::int64_t chunk);
  void wait_until_left();
  std::uint32_t next_epoch(std::uint32_t seen);
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  // The loop and the shares' ends are written only while the loop is closed and no worker is
  // inside. Workers read them only after they have entered and then seen it open.
  ChunkedLoop loop_{};
  std::exception_ptr failure_;
  std::atomic<std::int64_t> failed_chunk_{kNone};  ///< the first that is known
  std::mutex failure_mutex_;
  alignas(64) std::atomic<std::uint32_t> inside_{0};  ///< workers; a futex of the caller's
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  ///< a futex of the workers'
  std::atomic<bool> open_{false};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  const int threads_;
  const int spins_;
  std::vector<Share> shares_;  ///< the caller's first
  std::vector<std::thread> workers_;
};

/// parallel_for for more than one chunk. Nothing where ShapesOnly stands.
void run_in_chunks(const ChunkedLoop& loop);

/// body(begin, end) for every chunk of [0, count), on the calling thread's pool. The chunks depend
/// on count and grain only. Inside another parallel_for all chunks run here, in order.
template <typename Body>
void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  if (count <= grain) return body(std::int64_t{0}, count);
  using Type = std::remove_reference_t<Body>;
  const auto call = [](void* context, std::int64_t begin, std::int64_t end) {
    (*static_cast<Type*>(context))(begin, end);
  };
  run_in_chunks({call, const_cast<void*>(static_cast<const void*>(&body)), count, grain});
}

}  // namespace dtrun::tensors
