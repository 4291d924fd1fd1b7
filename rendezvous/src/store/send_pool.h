// SendPool: many short sends to many sockets at once, dealt to a few threads: the way of a packet
// through the kernel is what the sender's CPU does, some microseconds each. The calling thread
// takes part and comes back when all are sent, so that nothing is shared but during the call. Its
// threads are made with the first call and sleep between calls. Belongs to one thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace dtrun::rendezvous {

struct PendingSend {
  int fd = -1;
  std::string_view bytes;
  std::size_t sent = 0;  ///< less than all: it takes no more, or is broken
};

class SendPool {
 public:
  static constexpr std::size_t kMostThreads = 4;  ///< the caller's own among them

  SendPool() = default;
  ~SendPool();
  SendPool(const SendPool&) = delete;
  SendPool& operator=(const SendPool&) = delete;

  /// One attempt each, which does not wait. Each descriptor may be there once.
  void send_all(std::span<PendingSend> sends);

 private:
  void start_threads();
  void help();
  void take_part(std::span<PendingSend> sends);

  std::atomic<std::size_t> next_ = 0;  // of the batch
  std::mutex mutex_;
  std::condition_variable has_batch_, is_idle_;
  std::span<PendingSend> batch_;  // empty: nothing is to be done
  std::uint64_t batches_ = 0;
  int helping_ = 0;  // threads that are at the batch
  bool is_ending_ = false;
  bool is_started_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dtrun::rendezvous
