// StoreMemory: how much a server's store may hold in all, and how much it holds: keys, values,
// queues, waits, half requests, unsent answers. Counted, not measured: what an allocator adds on
// top is estimated by whoever charges. Owned by the StoreCore; not thread-safe.
#pragma once

#include <cstddef>
#include <limits>

namespace dtrun::rendezvous {

class StoreMemory {
 public:
  explicit StoreMemory(std::size_t most = std::numeric_limits<std::size_t>::max()) : most_(most) {}
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;

  std::size_t most() const { return most_; }
  std::size_t used() const { return used_; }
  /// For `bytes` more, once `freed` of those in use are given back.
  bool has_room(std::size_t bytes, std::size_t freed) const {
    const std::size_t left_in_use = used_ - freed;
    return left_in_use <= most_ && bytes <= most_ - left_in_use;
  }
  bool is_exceeded() const { return used_ > most_; }
  void take(std::size_t bytes) { used_ += bytes; }
  void give_back(std::size_t bytes) { used_ -= bytes; }

 private:
  const std::size_t most_;
  std::size_t used_ = 0;
};

/// What one owner has taken; given back with it.
class MemoryCharge {
 public:
  explicit MemoryCharge(StoreMemory& memory) : memory_(memory) {}
  ~MemoryCharge() { memory_.give_back(bytes_); }
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

  std::size_t bytes() const { return bytes_; }
  void set(std::size_t bytes) {
    memory_.take(bytes);
    memory_.give_back(bytes_);
    bytes_ = bytes;
  }

 private:
  StoreMemory& memory_;
  std::size_t bytes_ = 0;
};

}  // namespace dtrun::rendezvous
