// StoreBytes: a run of bytes that the store holds, a value or a request that has not come whole.
// Their memory is claimed from the StoreMemory before it is allocated. Short ones need no
// allocation; long ones grow where they lie, as realloc does it: by page tables, not by a copy that
// would need the memory twice. Not thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include "store/store_memory.h"

namespace dtrun::rendezvous {

class StoreBytes {
 public:
  explicit StoreBytes(StoreMemory& memory) : memory_(memory), data_(inline_) {}
  /// @throws StoreFull; so all that makes it longer
  StoreBytes(StoreMemory& memory, std::string_view text);
  /// The other one is left empty.
  StoreBytes(StoreBytes&& other) noexcept;
  ~StoreBytes();
  StoreBytes& operator=(StoreBytes&&) = delete;

  std::string_view view() const { return {data_, size_}; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return is_inline() ? sizeof inline_ : capacity_; }
  /// How much of the memory is claimed for it.
  std::size_t claimed() const { return is_inline() ? 0 : capacity_; }

  void reserve(std::size_t capacity, StoreMemory::Use use);
  void assign(std::string_view text);
  /// Takes some more room than that, where there is: who appends once does it again.
  void append(std::string_view text);
  /// Drops all but `part`, which lies in it, and gives back the room that leaves.
  void keep_only(std::string_view part);

 private:
  bool is_inline() const { return data_ == inline_; }
  void move_to(std::size_t capacity);

  StoreMemory& memory_;
  char* data_;
  std::size_t size_ = 0;
  union {
    std::size_t capacity_;
    char inline_[16];
  };
};

}  // namespace dtrun::rendezvous
