// Devices, streams and events, of the process's context.
#include <fmt/core.h>

#include <map>

#include "cuda/context.h"
#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {

namespace {

/// What is current for a thread, of one context: two threads may work on two streams of one device.
struct ThreadState {
  std::uint64_t context_number = 0;
  std::map<int, StreamHandle> streams;
  /// What is current to the user where the driver was not told; see restore_device().
  int untold_device = -1;
};

thread_local ThreadState thread_state;

ThreadState& this_thread() {
  const std::uint64_t number = context().number;
  if (thread_state.context_number != number) thread_state = {number, {}, -1};
  return thread_state;
}

}  // namespace

bool is_available() {
  return device_count() > 0;
}

int device_count() {
  int count = 0;
  const CudaApi& api = context().api;
  if (api.get_device_count(&count) == Status::success) return count;
  api.get_last_error();  // no driver is an answer, not an error
  return 0;
}

int current_device() {
  if (const int untold = this_thread().untold_device; untold >= 0) return untold;
  int index = 0;
  check(context().api.get_device(&index), "tell the current CUDA device");
  return index;
}

void set_device(int device_index) {
  check(context().api.set_device(device_index), fmt::format("use cuda:{}", device_index));
  this_thread().untold_device = -1;
}

void restore_device(int device_index) noexcept {
  // It was current before: nothing to report.
  int now = device_index;
  const CudaApi& api = context().api;
  if (api.get_device(&now) != Status::success || now == device_index) return;
  bool has_context = true;
  api.has_context(device_index, &has_context);
  if (has_context) {
    api.set_device(device_index);
  } else {
    this_thread().untold_device = device_index;
  }
}

void synchronize(int device_index) {
  const DeviceGuard guard(device_index);
  check(context().api.device_synchronize(), "wait for the device");
}

void synchronize() {
  synchronize(current_device());
}

DeviceGuard::DeviceGuard(int device_index) : previous_(device_index) {
  int now = device_index;
  check(context().api.get_device(&now), fmt::format("use cuda:{}", device_index));
  const int untold = this_thread().untold_device;
  previous_ = untold >= 0 ? untold : now;
  if (now != device_index) set_device(device_index);
  this_thread().untold_device = -1;
}

DeviceGuard::~DeviceGuard() {
  restore_device(previous_);
}

struct Event::Owner {
  explicit Owner(EventTiming timing) : api(context().api) {
    const DeviceGuard guard(current_device());
    check(api.event_create(&handle, timing), "make an event");
  }
  ~Owner() { api.event_destroy(handle); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  const CudaApi& api;
  EventHandle handle = nullptr;
};

Event::Event(EventTiming timing) : owner_(std::make_shared<Owner>(timing)) {}

EventHandle Event::handle() const {
  return owner_->handle;
}

bool Event::is_done() const {
  const Status status = owner_->api.event_query(owner_->handle);
  if (status == Status::not_ready) {
    owner_->api.get_last_error();
    return false;
  }
  check(owner_->api, status, "ask for an event");
  return true;
}

void Event::synchronize() const {
  check(owner_->api, owner_->api.event_synchronize(owner_->handle), "wait for an event");
}

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  check(owner_->api, owner_->api.event_elapsed(&milliseconds, start.handle(), handle()),
        "subtract two events");
  return milliseconds;
}

Stream Stream::from_pool(int device_index) {
  return context().streams.next(device_index);
}

void Stream::synchronize() const {
  const DeviceGuard guard(device_index_);
  check(context().api.stream_synchronize(handle_), "wait for a stream");
}

bool Stream::is_idle() const {
  const DeviceGuard guard(device_index_);
  const Status status = context().api.stream_query(handle_);
  if (status == Status::not_ready) {
    context().api.get_last_error();
    return false;
  }
  check(status, "ask for a stream");
  return true;
}

void Stream::record(const Event& event) const {
  const DeviceGuard guard(device_index_);
  check(context().api.event_record(event.handle(), handle_), "record an event");
}

void Stream::wait(const Event& event) const {
  const DeviceGuard guard(device_index_);
  check(context().api.stream_wait_event(handle_, event.handle()), "let a stream wait for an event");
}

void Stream::wait(const Stream& other) const {
  if (other == *this) return;
  const DeviceGuard guard(other.device_index_);  // where the event is made
  const Event event;
  other.record(event);
  wait(event);  // CUDA keeps a destroyed event until it has passed
}

Stream current_stream(int device_index) {
  const std::map<int, StreamHandle>& handles = this_thread().streams;
  const auto found = handles.find(device_index);
  return {device_index, found == handles.end() ? nullptr : found->second};
}

void set_current_stream(const Stream& stream) {
  this_thread().streams[stream.device_index()] = stream.handle();
}

StreamGuard::StreamGuard(const Stream& stream)
    : device_(stream.device_index()), previous_(current_stream(stream.device_index())) {
  set_current_stream(stream);
}

StreamGuard::~StreamGuard() {
  set_current_stream(previous_);
}

}  // namespace dtrun::tensors::cuda
