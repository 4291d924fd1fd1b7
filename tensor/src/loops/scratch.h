// Scratch: memory for one chunk of a loop. A little of it lies in the object, on the stack; more is
// kept by the thread for its next chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "host_blocks.h"
#include "thread_blocks.h"

namespace dtrun::tensors {

class Scratch {
 public:
  /// @throws std::bad_alloc
  explicit Scratch(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    if (is_large()) {
      block_ = host_blocks::allocate(bytes_);
    } else if (bytes_ > sizeof own_) {
      block_ = is_kept() ? thread_blocks::allocate(bytes_)
                         : ::operator new (bytes_, std::align_val_t{64});
    }
    if (block_ == nullptr && bytes_ > sizeof own_) throw std::bad_alloc();
  }
  ~Scratch() {
    if (is_large()) {
      host_blocks::release(block_, bytes_);
    } else if (block_ != nullptr && is_kept()) {
      thread_blocks::release(block_, bytes_);
    } else if (block_ != nullptr) {
      ::operator delete (block_, std::align_val_t{64});
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* data() { return block_ != nullptr ? static_cast<std::byte*>(block_) : own_; }

 private:
  bool is_large() const { return bytes_ >= host_blocks::kLeastBytes; }

  bool is_kept() const { return thread_blocks::serves(bytes_); }

  const std::size_t bytes_;
  void* block_ = nullptr;
  alignas(64) std::byte own_[8192];
};

}  // namespace dtrun::tensors
