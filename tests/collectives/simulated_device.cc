#include <cstring>
#include <thread>

#include "collectives/simulation_state.h"
#include "dtrun/base/error.h"

namespace dtrun::test {

using base::Error;
using base::ErrorCode;
using collectives::DeviceEvent;
using collectives::DeviceStream;
using simulated::Stream;

namespace {

SimulatedEvent* event_of(DeviceEvent event) {
  return reinterpret_cast<SimulatedEvent*>(event);
}

class SimulatedDevice : public collectives::DeviceApi {
 public:
  SimulatedDevice(std::shared_ptr<NcclSimulation::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  int device_count() override { return state_->options.devices; }
  int current_device() override {
    const std::scoped_lock lock(state_->mutex);
    return state_->current_device(rank_);
  }
  void set_current_device(int device) override {
    const std::scoped_lock lock(state_->mutex);
    state_->current_device(rank_) = device;
  }
  void restore_device(int device) noexcept override { set_current_device(device); }
  std::string bus_id(int device) override {
    return "gpu " + std::to_string(state_->options.one_gpu ? 0 : rank_) + "." +
           std::to_string(device);
  }
  DeviceStream current_stream(int) override { return nullptr; }
  void run_on(int, DeviceStream stream, std::function<void()> work) override {
    if (state_->options.runs_at_once) return work();
    push(stream, [work = std::move(work)] {
      work();
      return true;
    });
  }
  DeviceStream make_stream() override {
    const std::scoped_lock lock(state_->mutex);
    if (!state_->options.has_streams) throw Error(ErrorCode::kSystem, "no simulated stream");
    return reinterpret_cast<DeviceStream>(state_->make_stream());
  }
  // Its tasks may not be done: kept until the end.
  void destroy_stream(DeviceStream) noexcept override {}
  DeviceEvent make_event() override {
    const std::scoped_lock lock(state_->mutex);
    state_->events.push_back(std::make_unique<SimulatedEvent>());
    return reinterpret_cast<DeviceEvent>(state_->events.back().get());
  }
  void destroy_event(DeviceEvent) noexcept override {}

  void record(DeviceEvent handle, DeviceStream stream) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "record");
    Stream& queue = state_->stream(rank_, stream);
    for (const auto& end : state_->ends)
      for (const auto& [busy, task] : end->enqueuing)
        if (busy == &queue) state_->violate(rank_, "an event was recorded before NCCL was through");
    SimulatedEvent* const event = event_of(handle);
    const std::uint64_t number = ++event->recorded;
    queue.tasks.push_back([event, number] {
      event->passed = number;
      return true;
    });
    state_->run();
  }
  bool has_passed(DeviceEvent event) override {
    const std::scoped_lock lock(state_->mutex);
    state_->run();
    return event_of(event)->passed >= event_of(event)->recorded;
  }
  void synchronize(DeviceEvent event) override {
    {
      const std::scoped_lock lock(state_->mutex);
      state_->note(rank_, "synchronize");
    }
    while (!has_passed(event)) std::this_thread::yield();
  }
  void make_wait(DeviceStream stream, DeviceEvent handle) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "make_wait");
    SimulatedEvent* const event = event_of(handle);
    const std::uint64_t number = event->recorded;
    if (number == 0) state_->violate(rank_, "a stream waits for an event before it is recorded");
    state_->stream(rank_, stream).tasks.push_back([event, number] {
      return event->passed >= number;
    });
    state_->run();
  }
  void copy(void* target, const void* source, std::size_t bytes, DeviceStream stream) override {
    push(stream, [=] {
      if (bytes > 0) std::memmove(target, source, bytes);
      return true;
    });
  }
  std::shared_ptr<void> allocate(std::size_t bytes, int) override { return wrap(bytes); }
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) override { return wrap(bytes); }

 private:
  static std::shared_ptr<void> wrap(std::size_t bytes) {
    auto memory = std::make_shared<std::vector<char>>(bytes + 1);
    return {memory, memory->data()};
  }
  void push(DeviceStream stream, simulated::Task task) {
    const std::scoped_lock lock(state_->mutex);
    state_->stream(rank_, stream).tasks.push_back(std::move(task));
    state_->run();
  }
  const std::shared_ptr<NcclSimulation::State> state_;
  const int rank_;
};
}  // namespace

std::shared_ptr<collectives::DeviceApi> NcclSimulation::device_of(int rank) {
  return std::make_shared<SimulatedDevice>(state_, rank);
}

}  // namespace dtrun::test
