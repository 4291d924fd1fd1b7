// CUDA streams: all that a kernel's file needs of cuda.h, which says when what throws.
#pragma once

#include "dtrun/tensor/cuda_api.h"

namespace dtrun::tensors::cuda {

class Event;

/// A queue of a device's work. A value: streams live as long as the process, so that memory may
/// outlive its users.
class Stream {
 public:
  Stream(int device_index, StreamHandle handle) : device_index_(device_index), handle_(handle) {}
  /// One of 32 per device, handed out in turn; it does not wait for the default stream.
  static Stream from_pool(int device_index);
  static Stream of_default(int device_index) { return {device_index, nullptr}; }

  int device_index() const { return device_index_; }
  StreamHandle handle() const { return handle_; }
  void synchronize() const;
  bool is_idle() const;
  void record(const Event& event) const;
  /// What is enqueued from now on runs after the event.
  void wait(const Event& event) const;
  /// What is enqueued from now on runs after all that `other` has now.
  void wait(const Stream& other) const;
  friend bool operator==(const Stream&, const Stream&) = default;

 private:
  int device_index_;
  StreamHandle handle_;
};

/// Where this thread's operations on that device's tensors go; the default stream at first.
Stream current_stream(int device_index);
void set_current_stream(const Stream& stream);

}  // namespace dtrun::tensors::cuda
