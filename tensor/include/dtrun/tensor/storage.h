// Storage: a block of memory on one device, and how to give it back. Shared by every tensor that
// views it, which count themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "dtrun/base/counted.h"
#include "dtrun/tensor/device.h"

namespace dtrun::tensors {

class Storage;
using StoragePointer = base::Counted<Storage>;

class Storage : public base::Count {
 public:
  /// Zero bytes is fine. CPU memory is aligned to 64 bytes. @throws Error kSystem, or kUnavailable
  /// for a device that is not built in or not here
  static StoragePointer allocate(std::size_t bytes, Device device);
  /// Wraps memory of the caller's; `release` runs once, when the last user is gone.
  static StoragePointer wrap(void* data, std::size_t bytes, Device device,
                             std::function<void()> release);

  /// Two of the same size change contents, and their addresses stay: pages change places, which is
  /// not for memory that a device knows by its pages. Not counted as a write. Nobody may use either
  /// meanwhile. @return false: nothing was done, and copying does: memory of the caller's, of a
  /// device, or of no whole huge pages
  bool exchange_contents(Storage& other);

  /// Null while memory that comes and goes is away.
  void* data() const { return data_; }
  /// For wrapped memory that comes and goes while tensors refer to it: from now on it lies there.
  /// Not counted as a write: the numbers are the same, or nobody looks.
  void point_to(void* data);
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  /// How often it was written to in place: what a gradient saved is valid while this stands still.
  std::uint32_t version() const { return version_.load(std::memory_order_acquire); }
  /// Before the write: who reads meanwhile, and finds the version unchanged behind, has not seen
  /// any of it.
  void count_write() { version_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  friend StoragePointer;
  /// What has to be done with the memory in the end.
  enum class Owner : std::uint8_t { block, pages, cuda, caller, allocator };

  Storage(void* data, std::size_t bytes, Device device, Owner owner)
      : data_(data), bytes_(bytes), device_(device), owner_(owner) {}
  ~Storage() = default;
  static StoragePointer allocate_host(std::size_t bytes);
  static void destroy(Storage* storage) noexcept;

  void* data_;
  std::size_t bytes_;
  Device device_;
  std::atomic<std::uint32_t> version_{0};
  Owner owner_;
  std::function<void()> release_;  ///< of memory of the caller's
};

}  // namespace dtrun::tensors
