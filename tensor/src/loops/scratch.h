// Scratch: memory for one chunk of a loop. A little of it lies in the object, on the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "host_blocks.h"

namespace dtrun::tensors {

class Scratch {
 public:
  /// @throws std::bad_alloc
  explicit Scratch(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    if (is_large()) {
      block_ = host_blocks::allocate(bytes_);
      if (block_ == nullptr) throw std::bad_alloc();
    } else if (bytes_ > sizeof own_) {
      block_ = ::operator new (bytes_, std::align_val_t{64});
    }
  }
  ~Scratch() {
    if (is_large()) {
      host_blocks::release(block_, bytes_);
    } else if (block_ != nullptr) {
      ::operator delete (block_, std::align_val_t{64});
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* data() { return block_ != nullptr ? static_cast<std::byte*>(block_) : own_; }

 private:
  bool is_large() const { return bytes_ >= host_blocks::kLeastBytes; }

  const std::size_t bytes_;
  void* block_ = nullptr;
  alignas(64) std::byte own_[8192];
};

}  // namespace dtrun::tensors
