// Scratch: memory for one chunk of a loop. A little of it lies in the object, on the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace dtrun::tensors {

class Scratch {
 public:
  explicit Scratch(std::int64_t bytes) {
    if (bytes > static_cast<std::int64_t>(sizeof own_)) {
      more_.reset(new (std::align_val_t{64}) std::byte[static_cast<std::size_t>(bytes)]);
    }
  }
  std::byte* data() { return more_ ? more_.get() : own_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  alignas(64) std::byte own_[8192];
  std::unique_ptr<std::byte[], Free> more_;
};

}  // namespace dtrun::tensors
