#include "tensor/simulated_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "arithmetic.h"
#include "dtrun/base/check.h"
#include "element.h"

namespace dtrun::tensors::cuda {
namespace {

constexpr Status kInvalidHandle{400};
SimulatedCuda* simulator = nullptr;

}  // namespace

SimulatedCuda::SimulatedCuda(Options options)
    : options_(options), used_(static_cast<std::size_t>(options.devices), 0) {
  DT_CHECK(simulator == nullptr);
  simulator = this;
  current_device_of_thread() = 0;
}

SimulatedCuda::~SimulatedCuda() {
  // What is cached belongs to whoever made the allocator; the process gives it back here.
  for (const auto& [data, size] : memory_) std::free(data);
  for (void* data : pinned_) std::free(data);
  simulator = nullptr;
}

int& SimulatedCuda::current_device_of_thread() {
  thread_local int index = 0;
  return index;
}

Status SimulatedCuda::begin(const char* call) {
  calls_.push_back(call);
  contexts_.insert(current_device_of_thread());
  Status status = broken_ ? Status::illegal_address : Status::success;
  if (const auto found = failures_.find(call); found != failures_.end()) {
    status = found->second;
    failures_.erase(found);
  }
  if (status != Status::success) last_error_ = status;
  return status;
}

SimulatedCuda::StreamKey SimulatedCuda::key_of(StreamHandle stream) const {
  if (stream == nullptr) return {current_device_of_thread(), nullptr};
  for (const auto& [key, steps] : streams_) {
    if (key.second == stream) return key;
  }
  return {-1, stream};
}

Status SimulatedCuda::enqueue(StreamHandle stream, std::function<void()> work) {
  const StreamKey key = key_of(stream);
  if (key.first != current_device_of_thread()) return last_error_ = kInvalidHandle;
  streams_[key].push_back({std::move(work)});
  return Status::success;
}

bool SimulatedCuda::may_run(const Step& step) const {
  if (step.wait_for == nullptr) return true;
  return events_.at(step.wait_for).passed >= step.wait_version;
}

bool SimulatedCuda::run_one(const StreamKey& key) {
  std::deque<Step>& steps = streams_[key];
  if (steps.empty() || !may_run(steps.front())) return false;
  const Step step = std::move(steps.front());  // it may add to the stream
  steps.pop_front();
  if (step.work) step.work();
  return true;
}

/// One step of a stream that has some, or of whom it waits for.
void SimulatedCuda::advance(const StreamKey& key) {
  if (run_one(key)) return;
  const std::deque<Step>& steps = streams_[key];
  DT_CHECK(!steps.empty());
  advance(events_.at(steps.front().wait_for).stream);
}

void SimulatedCuda::drain(const StreamKey& key) {
  while (!streams_[key].empty()) advance(key);
}

void SimulatedCuda::finish(EventHandle event) {
  const Event& state = events_.at(event);
  while (state.passed < state.recorded) advance(state.stream);
}

void SimulatedCuda::drain_device(int device) {
  std::vector<StreamKey> keys;
  for (const auto& [key, steps] : streams_) {
    if (key.first == device) keys.push_back(key);
  }
  for (const StreamKey& key : keys) drain(key);
}

void SimulatedCuda::fail_next(const std::string& call, Status status) {
  const std::scoped_lock lock(mutex_);
  failures_[call] = status;
}

void SimulatedCuda::break_context() {
  const std::scoped_lock lock(mutex_);
  broken_ = true;
}

void SimulatedCuda::run_some(std::mt19937& random, int steps) {
  const std::scoped_lock lock(mutex_);
  std::vector<StreamKey> keys;
  for (const auto& [key, queue] : streams_) keys.push_back(key);
  for (int i = 0; i < steps && !keys.empty(); ++i) run_one(keys[random() % keys.size()]);
}

std::vector<std::string> SimulatedCuda::calls() {
  const std::scoped_lock lock(mutex_);
  return calls_;
}

void SimulatedCuda::clear_calls() {
  const std::scoped_lock lock(mutex_);
  calls_.clear();
}

std::size_t SimulatedCuda::bytes_in_use(int device) {
  const std::scoped_lock lock(mutex_);
  return used_[static_cast<std::size_t>(device)];
}

int SimulatedCuda::live_events() {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(std::count_if(events_.begin(), events_.end(),
                                        [](const auto& event) { return !event.second.destroyed; }));
}

/// CudaApi's functions, over the one simulator.
struct SimulatedCalls {
  using Lock = std::scoped_lock<std::recursive_mutex>;

  static Status get_device(int* index) {
    const Lock lock(simulator->mutex_);
    *index = SimulatedCuda::current_device_of_thread();
    return simulator->broken_ ? Status::illegal_address : Status::success;
  }
  static Status set_device(int index) {
    const Lock lock(simulator->mutex_);
    if (index < 0 || index >= simulator->options_.devices) {
      return simulator->last_error_ = Status::invalid_device;
    }
    SimulatedCuda::current_device_of_thread() = index;
    simulator->contexts_.insert(index);
    return Status::success;
  }
  static Status has_context(int index, bool* has) {
    const Lock lock(simulator->mutex_);
    *has = simulator->contexts_.count(index) > 0;
    return Status::success;
  }
  static Status device_synchronize() {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("device_synchronize");
    if (status == Status::success) {
      simulator->drain_device(SimulatedCuda::current_device_of_thread());
    }
    return status;
  }
  static Status memory_info(MemoryInfo* info) {
    const Lock lock(simulator->mutex_);
    const std::size_t device = static_cast<std::size_t>(SimulatedCuda::current_device_of_thread());
    info->total = simulator->options_.bytes;
    info->free = info->total - simulator->used_[device];
    return simulator->begin("memory_info");
  }
  static Status malloc(void** data, std::size_t bytes) {
    const Lock lock(simulator->mutex_);
    const int device = SimulatedCuda::current_device_of_thread();
    std::size_t& used = simulator->used_[static_cast<std::size_t>(device)];
    if (const Status status = simulator->begin("malloc"); status != Status::success) return status;
    if (used + bytes > simulator->options_.bytes) {
      return simulator->last_error_ = Status::out_of_memory;
    }
    *data = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    std::memset(*data, 0xA5, bytes);  // nothing may rely on zeros
    simulator->memory_[*data] = {bytes, device};
    used += bytes;
    return Status::success;
  }
  static Status free(void* data) {
    const Lock lock(simulator->mutex_);
    if (const Status status = simulator->begin("free"); status != Status::success) return status;
    const auto found = simulator->memory_.find(data);
    DT_CHECK(found != simulator->memory_.end());
    const auto [bytes, device] = found->second;
    // Unlike CUDA's, this free does not wait: nothing may be using the memory any more.
    simulator->used_[static_cast<std::size_t>(device)] -= bytes;
    simulator->memory_.erase(found);
    std::free(data);
    return Status::success;
  }
  static Status host_malloc(void** data, std::size_t bytes) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("host_malloc");
    if (status != Status::success) return status;
    *data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    simulator->pinned_.insert(*data);
    return status;
  }
  static Status host_free(void* data) {
    const Lock lock(simulator->mutex_);
    DT_CHECK(simulator->pinned_.erase(data) == 1);
    std::free(data);
    return simulator->begin("host_free");
  }
  static Status memcpy_async(void* target, const void* source, std::size_t bytes,
                             StreamHandle stream) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("memcpy_async");
    if (status != Status::success) return status;
    return simulator->enqueue(stream, [=] { std::memcpy(target, source, bytes); });
  }
  static Status memset_async(void* target, int byte, std::size_t bytes, StreamHandle stream) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("memset_async");
    if (status != Status::success) return status;
    return simulator->enqueue(stream, [=] { std::memset(target, byte, bytes); });
  }
  static Status stream_create(StreamHandle* stream) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("stream_create");
    if (status != Status::success) return status;
    *stream = reinterpret_cast<StreamHandle>(simulator->next_handle_++);
    simulator->streams_[{SimulatedCuda::current_device_of_thread(), *stream}];
    return status;
  }
  static Status stream_destroy(StreamHandle stream) {
    const Lock lock(simulator->mutex_);
    simulator->drain(simulator->key_of(stream));
    simulator->streams_.erase(simulator->key_of(stream));
    return simulator->begin("stream_destroy");
  }
  static Status stream_synchronize(StreamHandle stream) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("stream_synchronize");
    if (status == Status::success) simulator->drain(simulator->key_of(stream));
    return status;
  }
  static Status stream_query(StreamHandle stream) {
    const Lock lock(simulator->mutex_);
    if (simulator->broken_) return simulator->last_error_ = Status::illegal_address;
    const bool is_idle = simulator->streams_[simulator->key_of(stream)].empty();
    return is_idle ? Status::success : simulator->last_error_ = Status::not_ready;
  }
  static Status stream_wait_event(StreamHandle stream, EventHandle event) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("stream_wait_event");
    if (status != Status::success) return status;
    const SimulatedCuda::Event& state = simulator->events_.at(event);
    if (state.recorded == 0) return status;
    simulator->streams_[simulator->key_of(stream)].push_back({{}, event, state.recorded});
    return status;
  }
  static Status launch_host_function(StreamHandle stream, void (*function)(void*), void* argument) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("launch_host_function");
    if (status != Status::success) return status;
    return simulator->enqueue(stream, [=] { function(argument); });
  }
  static Status launch_kernel(const KernelLaunch& launch, StreamHandle stream) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("launch_kernel");
    if (status != Status::success) return status;
    DT_CHECK(launch.count > 0 && launch.blocks > 0 && launch.threads == 256 &&
             launch.body_bytes <= 4096);
    const char* first = static_cast<const char*>(launch.body);
    // Bodies want the alignment of their type.
    auto body = std::shared_ptr<char>(
        static_cast<char*>(std::aligned_alloc(64, (launch.body_bytes + 63) / 64 * 64)), std::free);
    std::copy(first, first + launch.body_bytes, body.get());
    return simulator->enqueue(
        stream, [body, run = launch.run_on_host, count = launch.count] { run(body.get(), count); });
  }
  static Status event_create(EventHandle* event, EventTiming) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("event_create");
    if (status != Status::success) return status;
    *event = reinterpret_cast<EventHandle>(simulator->next_handle_++);
    simulator->events_[*event] = {SimulatedCuda::current_device_of_thread(), 0, 0, false, {}};
    return status;
  }
  static Status event_destroy(EventHandle event) {
    const Lock lock(simulator->mutex_);
    SimulatedCuda::Event& state = simulator->events_.at(event);
    DT_CHECK(!state.destroyed);
    state.destroyed = true;
    return simulator->begin("event_destroy");
  }
  static Status event_record(EventHandle event, StreamHandle stream) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("event_record");
    if (status != Status::success) return status;
    const SimulatedCuda::StreamKey key = simulator->key_of(stream);
    SimulatedCuda::Event& state = simulator->events_.at(event);
    if (state.device != key.first) return simulator->last_error_ = kInvalidHandle;
    state.stream = key;
    const int version = ++state.recorded;
    simulator->streams_[key].push_back(
        {[event, version] { simulator->events_.at(event).passed = version; }});
    return status;
  }
  static Status event_query(EventHandle event) {
    const Lock lock(simulator->mutex_);
    if (simulator->broken_) return simulator->last_error_ = Status::illegal_address;
    const SimulatedCuda::Event& state = simulator->events_.at(event);
    return state.passed >= state.recorded ? Status::success
                                          : simulator->last_error_ = Status::not_ready;
  }
  static Status event_synchronize(EventHandle event) {
    const Lock lock(simulator->mutex_);
    const Status status = simulator->begin("event_synchronize");
    if (status != Status::success) return status;
    simulator->finish(event);
    return status;
  }
  static Status get_last_error() {
    const Lock lock(simulator->mutex_);
    return std::exchange(simulator->last_error_, Status::success);
  }
};

const CudaApi& SimulatedCuda::api() {
  using Calls = SimulatedCalls;
  static constexpr CudaApi kSimulated{
      .get_device_count =
          [](int* count) {
            *count = simulator->options_.devices;
            return Status::success;
          },
      .get_device = &Calls::get_device,
      .set_device = &Calls::set_device,
      .has_context = &Calls::has_context,
      .device_synchronize = &Calls::device_synchronize,
      .memory_info = &Calls::memory_info,
      .malloc = &Calls::malloc,
      .free = &Calls::free,
      .host_malloc = &Calls::host_malloc,
      .host_free = &Calls::host_free,
      .memcpy_async = &Calls::memcpy_async,
      .memset_async = &Calls::memset_async,
      .stream_create = &Calls::stream_create,
      .stream_destroy = &Calls::stream_destroy,
      .stream_synchronize = &Calls::stream_synchronize,
      .stream_query = &Calls::stream_query,
      .stream_wait_event = &Calls::stream_wait_event,
      .launch_host_function = &Calls::launch_host_function,
      .launch_kernel = &Calls::launch_kernel,
      .event_create = &Calls::event_create,
      .event_destroy = &Calls::event_destroy,
      .event_record = &Calls::event_record,
      .event_query = &Calls::event_query,
      .event_synchronize = &Calls::event_synchronize,
      .event_elapsed =
          [](float* milliseconds, EventHandle, EventHandle) {
            *milliseconds = 1;
            return Status::success;
          },
      .get_last_error = &Calls::get_last_error,
      .error_name = [](Status) { return "simulated"; },
      .error_text = [](Status) { return "a simulated failure"; },
  };
  return kSimulated;
}

namespace {

/// Column by column, as the interface says; in double, which is exact for the tests' numbers.
template <typename T, typename R>
void multiply(const Gemm& gemm) {
  for (std::int64_t i = 0; i < gemm.batch; ++i) {
    const T* left = static_cast<const T*>(gemm.left) + i * gemm.left_step;
    const T* right = static_cast<const T*>(gemm.right) + i * gemm.right_step;
    R* result = static_cast<R*>(gemm.result) + i * gemm.result_step;
    const auto at = [](const T* data, BlasTranspose transpose, std::int64_t row,
                       std::int64_t column, std::int64_t leading) {
      const bool turned = transpose == BlasTranspose::yes;
      return static_cast<double>(
          Element<T>::load(turned ? data[column + row * leading] : data[row + column * leading]));
    };
    for (std::int64_t row = 0; row < gemm.rows; ++row) {
      for (std::int64_t column = 0; column < gemm.columns; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < gemm.inner; ++k) {
          sum += at(left, gemm.left_transpose, row, k, gemm.left_leading) *
                 at(right, gemm.right_transpose, k, column, gemm.right_leading);
        }
        R& place = result[row + column * gemm.result_leading];
        sum *= gemm.alpha;
        if (gemm.beta != 0) sum += gemm.beta * static_cast<double>(Element<R>::load(place));
        place = Element<R>::store(static_cast<ComputeType<R>>(sum));
      }
    }
  }
}

/// What cuBLAS demands of its arguments.
void check_arguments(const Gemm& gemm) {
  const bool left_turned = gemm.left_transpose == BlasTranspose::yes;
  const bool right_turned = gemm.right_transpose == BlasTranspose::yes;
  DT_CHECK(gemm.left_leading >= std::max(1, left_turned ? gemm.inner : gemm.rows));
  DT_CHECK(gemm.right_leading >= std::max(1, right_turned ? gemm.columns : gemm.inner));
  DT_CHECK(gemm.result_leading >= std::max(1, gemm.rows) && gemm.batch >= 1);
  DT_CHECK(gemm.result_dtype == gemm.dtype ||
           (item_size(gemm.dtype) == 2 && gemm.result_dtype == DType::f32));
}

}  // namespace

const BlasApi& SimulatedCuda::blas() {
  static constexpr BlasApi kSimulated{
      .require = [] {},
      .create =
          [](BlasHandle* handle, StreamHandle stream) {
            // The handle is the stream; of the default one, something that is not null.
            *handle = stream == nullptr ? reinterpret_cast<BlasHandle>(std::uintptr_t{1})
                                        : reinterpret_cast<BlasHandle>(stream);
            return simulator->begin("blas_create") == Status::success ? 0 : 3;
          },
      .multiply =
          [](BlasHandle handle, const Gemm& gemm) {
            if (simulator->begin("blas_multiply") != Status::success) return 13;
            check_arguments(gemm);
            const auto value = reinterpret_cast<std::uintptr_t>(handle);
            const StreamHandle stream =
                value == 1 ? nullptr : reinterpret_cast<StreamHandle>(handle);
            const Status status = simulator->enqueue(stream, [gemm] {
              dispatch(gemm.dtype, [&](auto tag) {
                using T = typename decltype(tag)::Type;
                gemm.result_dtype == gemm.dtype ? multiply<T, T>(gemm) : multiply<T, float>(gemm);
              });
            });
            return status == Status::success ? 0 : 13;
          },
      .status_text = [](int) { return "a simulated failure of cuBLAS"; },
  };
  return kSimulated;
}

}  // namespace dtrun::tensors::cuda
