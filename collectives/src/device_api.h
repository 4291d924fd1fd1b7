// DeviceApi: what the backends for CUDA tensors need of CUDA: streams, events, copies, memory. It
// is an interface, so that the backends can be tested without a GPU against a simulation. cuda/ has
// the real implementation, no_cuda/ stands in where there is no toolkit. Thread-safe. Every
// function throws Error kUnavailable or kSystem if the driver refuses. Streams and events belong to
// the device that was current when they were made.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace dtrun::collectives {

using DeviceStream = struct DeviceStreamTag*;
using DeviceEvent = struct DeviceEventTag*;

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  /// The number of devices; 0 without a driver. Never throws.
  virtual int device_count() = 0;
  virtual int current_device() = 0;
  virtual void set_current_device(int device) = 0;
  /// Makes a device current again, unless that would be the process' first use of it: a new thread
  /// starts on device 0, and a context there would take memory from other ranks.
  virtual void restore_device(int device) noexcept = 0;
  /// Equal for equal GPUs of one machine: "0000:1b:00.0".
  virtual std::string bus_id(int device) = 0;

  /// The calling thread's current stream, on which its tensors are computed.
  virtual DeviceStream current_stream(int device) = 0;
  /// Runs `work`, whose kernels go to that stream: at once, or when the stream reaches it.
  virtual void run_on(int device, DeviceStream stream, std::function<void()> work) = 0;
  /// Of high priority, and not ordered with the default stream.
  virtual DeviceStream make_stream() = 0;
  virtual void destroy_stream(DeviceStream stream) noexcept = 0;

  virtual DeviceEvent make_event() = 0;
  virtual void destroy_event(DeviceEvent event) noexcept = 0;
  virtual void record(DeviceEvent event, DeviceStream stream) = 0;
  /// Whether everything before the event in its stream is done. Never blocks.
  virtual bool has_passed(DeviceEvent event) = 0;
  /// Blocks until everything before the event is done.
  virtual void synchronize(DeviceEvent event) = 0;
  /// What is enqueued to the stream from now on waits for the event. Never blocks the caller.
  virtual void make_wait(DeviceStream stream, DeviceEvent event) = 0;

  /// Copies between device memory and pinned host memory, in stream order.
  virtual void copy(void* target, const void* source, std::size_t bytes, DeviceStream stream) = 0;
  virtual std::shared_ptr<void> allocate(std::size_t bytes, int device) = 0;
  virtual std::shared_ptr<void> allocate_pinned(std::size_t bytes) = 0;
};

/// In a build without CUDA it reports 0 devices, and every other function throws kUnavailable.
std::shared_ptr<DeviceApi> real_device_api();

/// Makes a device the thread's current one for the guard's life.
class CurrentDevice {
 public:
  CurrentDevice(DeviceApi& api, int device) : api_(api), previous_(api.current_device()) {
    api_.set_current_device(device);
  }
  ~CurrentDevice() { api_.restore_device(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  DeviceApi& api_;
  const int previous_;
};

/// An event, owned.
class Event {
 public:
  explicit Event(std::shared_ptr<DeviceApi> api)
      : api_(std::move(api)), event_(api_->make_event()) {}
  ~Event() { api_->destroy_event(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  DeviceEvent get() const { return event_; }

 private:
  const std::shared_ptr<DeviceApi> api_;
  const DeviceEvent event_;
};

}  // namespace dtrun::collectives
