// CUDA devices, streams, events and memory, by PyTorch's names. A build without CUDA, or a machine
// without its driver, has no devices; what needs one throws Error kUnavailable there. Thread-safe;
// the current device and the current streams belong to the thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dtrun/tensor/cuda_api.h"
#include "dtrun/tensor/cuda_stream.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors::cuda {

/// CUDA support is compiled in. Never fails.
bool is_built();
/// A device is here. Never fails.
bool is_available();
/// Devices that this process can use; 0 without driver or build. Never fails.
int device_count();
int current_device();
void set_device(int device_index);
/// Makes a device current again that was current before. Where the process has never used it, only
/// this thread's current_device() says so: the driver would make a context there. For guards.
void restore_device(int device_index) noexcept;
/// Waits for all that was enqueued on a device.
void synchronize(int device_index);
void synchronize();  ///< the current device

/// Makes a device the thread's current one for the guard's life.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device_index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_;
};

/// A point in a stream's work. A handle: copies are the same event.
class Event {
 public:
  /// On the current device.
  explicit Event(EventTiming timing = EventTiming::off);
  EventHandle handle() const;
  bool is_done() const;  ///< true where it was never recorded
  void synchronize() const;
  /// Of two timing events that are done.
  float milliseconds_since(const Event& start) const;

 private:
  struct Owner;
  std::shared_ptr<Owner> owner_;
};

/// Makes a stream and its device current for the guard's life.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  DeviceGuard device_;
  Stream previous_;
};

/// The tensor's memory is used on another stream than that it was made on: when it is given back,
/// it is not handed out again before what that stream has then is done.
void record_stream(const LocalTensor& tensor, const Stream& stream);

/// Bytes, of one device.
struct MemoryStats {
  std::size_t allocated;  ///< in tensors, rounded up to blocks
  std::size_t reserved;   ///< taken from the driver
  std::size_t allocated_peak;
  std::size_t reserved_peak;
};
MemoryStats memory_stats(int device_index);
/// Gives cached memory that no tensor uses back to the driver, on all devices.
void empty_cache();

/// A tensor in pinned host memory: copies between it and a device can be asynchronous.
LocalTensor empty_pinned(const Shape& shape, DType dtype);
/// Enqueues a copy on the device's current stream and returns at once. One side is on a device, the
/// other there or in pinned memory; both are contiguous, of one dtype and shape, and stay alive
/// until the stream is past it. @throws Error kInvalidArgument
void copy_async(const LocalTensor& target, const LocalTensor& source);

}  // namespace dtrun::tensors::cuda
