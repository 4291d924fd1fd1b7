#include "nccl/herald.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "quiet_thread.h"

namespace dtrun::collectives::nccl {

namespace {

using Clock = std::chrono::steady_clock;

/// What a failed rank has to say reaches the store within this, or not at all.
constexpr auto kLastErrands = std::chrono::seconds(2);

}  // namespace

struct Herald::State {
  struct Appointment {
    Clock::time_point due;
    Errand errand;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Appointment> appointments;
  bool is_out = false;  ///< on an errand
  bool stopping = false;
  bool stopped = false;
};

Herald::Herald() : state_(std::make_shared<State>()) {
  // Joined by `stopped`: a thread that the store keeps cannot be waited for.
  start_quiet_thread("dtrun-nccl-word", [state = state_] { run(*state); }).detach();
}

Herald::~Herald() {
  std::unique_lock lock(state_->mutex);
  const auto end = Clock::now() + kLastErrands;
  const auto has_said_all = [&] { return state_->appointments.empty() && !state_->is_out; };
  state_->changed.wait_until(lock, end, has_said_all);
  state_->stopping = true;
  state_->changed.notify_all();
  state_->changed.wait_until(lock, std::max(end, Clock::now()),
                             [&] { return state_->stopped || state_->is_out; });
}

void Herald::post(Errand errand) {
  const std::scoped_lock lock(state_->mutex);
  state_->appointments.push_back({Clock::now(), std::move(errand)});
  state_->changed.notify_all();
}

void Herald::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (!state.stopping) {
    const auto next = std::min_element(state.appointments.begin(), state.appointments.end(),
                                       [](const auto& a, const auto& b) { return a.due < b.due; });
    if (next == state.appointments.end()) {
      state.changed.wait(lock);
      continue;
    }
    if (next->due > Clock::now()) {
      state.changed.wait_until(lock, Clock::time_point(next->due));
      continue;
    }
    Errand errand = std::move(next->errand);
    state.appointments.erase(next);
    state.is_out = true;
    lock.unlock();
    const std::optional<Duration> again = errand();
    if (!again) errand = nullptr;  // what it held may take time to go
    lock.lock();
    state.is_out = false;
    if (again) state.appointments.push_back({Clock::now() + *again, std::move(errand)});
    state.changed.notify_all();
  }
  state.stopped = true;
  state.changed.notify_all();
}

}  // namespace dtrun::collectives::nccl
