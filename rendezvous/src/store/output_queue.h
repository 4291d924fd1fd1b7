// OutputQueue: the bytes that a connection has yet to send. Small ones are gathered, large values
// are kept by reference: a thousand readers of one value share it. Nothing is kept of what is sent:
// an idle connection has no buffer. Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "store/store_core.h"
#include "store/store_memory.h"
#include "store/store_protocol.h"

namespace dtrun::rendezvous {

class OutputQueue {
 public:
  explicit OutputQueue(StoreMemory& memory) : charge_(memory) {}

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  /// The memory of the queue itself, without values of the store.
  std::size_t own_bytes() const { return charge_.bytes(); }

  template <typename Number>
  void append_integer(Number number) {
    append_own([&](std::string& own) { append_number(own, number); });
  }
  void append_length_and(std::string_view text);
  /// Null: an empty text.
  void append_length_and(const Value& value);

  /// Fills up to `count` pieces with what comes first; returns how many.
  std::size_t front(iovec* pieces, std::size_t count) const;
  /// Forgets the first `bytes`.
  void pop(std::size_t bytes);

 private:
  struct Chunk {
    std::string own;
    Value shared;  ///< where set: instead of own
    std::string_view view() const { return shared ? *shared : std::string_view(own); }
  };
  std::string& tail();
  /// `append` appends to the text that it is given.
  template <typename Append>
  void append_own(Append append) {
    std::string& own = tail();
    const std::size_t size = own.size(), cost = cost_of(own);
    append(own);
    size_ += own.size() - size;
    charge_.set(charge_.bytes() + cost_of(own) - cost);
  }
  static std::size_t cost_of(const std::string& own) {
    return own.capacity() > std::string().capacity() ? own.capacity() : 0;
  }
  void add_chunk(Chunk chunk);
  void forget(Chunk& chunk);

  std::vector<Chunk> chunks_;
  std::size_t first_ = 0;       // chunks before it are sent
  std::size_t first_sent_ = 0;  // bytes of chunks_[first_] that are sent
  std::size_t size_ = 0;
  MemoryCharge charge_;
};

}  // namespace dtrun::rendezvous
