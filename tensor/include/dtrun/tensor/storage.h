// Storage: a block of memory on one device, and how to give it back. Shared by every tensor that
// views it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "dtrun/tensor/device.h"

namespace dtrun::tensors {

class Storage {
 public:
  /// Zero bytes is fine. CPU memory is aligned to 64 bytes. @throws Error kSystem, or kUnavailable
  /// for a device that is not built in or not here
  static std::shared_ptr<Storage> allocate(std::size_t bytes, Device device);
  /// Wraps memory of the caller's; `release` runs once, when the last user is gone.
  static std::shared_ptr<Storage> wrap(void* data, std::size_t bytes, Device device,
                                       std::function<void()> release);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  Storage(void* data, std::size_t bytes, Device device, std::function<void()> release);
  void* data_;
  std::size_t bytes_;
  Device device_;
  std::function<void()> release_;
};

}  // namespace dtrun::tensors
