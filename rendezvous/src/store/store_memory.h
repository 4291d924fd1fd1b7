// StoreMemory: how much a server's store may hold in all, and how much it holds: keys, values,
// queues, waits, half requests, unsent answers. Counted, not measured: what an allocator adds on
// top is estimated by whoever charges. Who wants more claims it first, so that what is checked and
// what is charged are the same. Owned by the StoreCore; not thread-safe.
#pragma once

#include <cstddef>
#include <limits>

#include "dtrun/base/error.h"

namespace dtrun::rendezvous {

/// A claim was refused; nothing has changed.
class StoreFull : public base::Error {
 public:
  StoreFull() : Error(base::ErrorCode::kSystem, "the store is full") {}
};

class StoreMemory {
 public:
  explicit StoreMemory(std::size_t most = std::numeric_limits<std::size_t>::max()) : most_(most) {}
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;

  /// Answers, and requests that add nothing, may use a sixteenth more, so that a full store can be
  /// read and emptied.
  enum class Use { kKept, kPassing };

  std::size_t most(Use use = Use::kKept) const {
    const std::size_t reserve = most_ / 16;
    return use == Use::kKept || reserve > kAll - most_ ? most_ : most_ + reserve;
  }
  std::size_t used() const { return used_; }
  bool has_room(std::size_t bytes, Use use = Use::kKept) const {
    return used_ <= most(use) && bytes <= most(use) - used_;
  }
  /// @throws StoreFull
  void claim(std::size_t bytes, Use use = Use::kKept) {
    if (!has_room(bytes, use)) throw StoreFull();
    used_ += bytes;
  }
  /// For memory that cannot be refused when it is needed, such as an answer's: see is_exceeded().
  void take(std::size_t bytes) { used_ += bytes; }
  bool is_exceeded() const { return used_ > most(Use::kPassing); }
  void give_back(std::size_t bytes) { used_ -= bytes; }

 private:
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  const std::size_t most_;
  std::size_t used_ = 0;
};

/// The memory that one owner has taken; given back when this is destroyed.
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
