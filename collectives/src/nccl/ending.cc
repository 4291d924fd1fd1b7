#include "nccl/ending.h"

#include <thread>
#include <utility>

#include "dtrun/base/log.h"
#include "quiet_thread.h"

namespace dtrun::collectives::nccl {

namespace {

/// Before it, an abort in a group of calls frees at once.
constexpr int kGroupsAborts = 22200;

void report(const Ending::Plan& plan, Result result) {
  if (result == Result::success || result == Result::in_progress) return;
  base::log::warning(base::log::Component::kCollectives,
                     "group '{}': a communicator could not be ended: {}", plan.group,
                     plan.nccl->error_text(result));
}

/// A new thread is on device 0, which may be another rank's.
void use_device(const Ending::Plan& plan) {
  try {
    plan.device->set_current_device(plan.device_index);
  } catch (const base::Error&) {  // what is wrong with the device is why these end
  }
}

void abort_together(const Ending::Plan& plan) {
  plan.nccl->group_start();
  for (const Communicator communicator : plan.to_abort)
    report(plan, plan.nccl->abort(communicator));
  report(plan, plan.nccl->group_end());
}

/// A thread for each: each tells its kernels to end before it stands.
void abort_at_once(const Ending::Plan& plan) {
  std::vector<std::thread> threads;
  for (const Communicator communicator : plan.to_abort) {
    const auto abort = [&plan, communicator] {
      use_device(plan);
      report(plan, plan.nccl->abort(communicator));
    };
    try {
      threads.push_back(start_quiet_thread("dtrun-nccl-end", abort));
    } catch (const base::Error&) {
      abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::shared_ptr<Ending> Ending::begin(Plan plan) {
  const std::shared_ptr<Ending> ending(new Ending(plan.to_abort.size() + plan.to_destroy.size()));
  const auto shared = std::make_shared<Plan>(std::move(plan));
  try {
    // Nobody joins it: where NCCL never returns it stays, and the process ends without it.
    start_quiet_thread("dtrun-nccl-end", [ending, shared] { ending->run(*shared); }).detach();
  } catch (const base::Error& error) {
    base::log::warning(base::log::Component::kCollectives, "group '{}': {}", shared->group,
                       error.what());
    ending->run(*shared);
  }
  return ending;
}

void Ending::run(Plan& plan) {
  use_device(plan);
  if (plan.to_abort.size() == 1)
    report(plan, plan.nccl->abort(plan.to_abort.front()));
  else if (!plan.to_abort.empty() && plan.nccl->version() >= kGroupsAborts)
    abort_together(plan);
  else if (!plan.to_abort.empty())
    abort_at_once(plan);
  for (const Communicator communicator : plan.to_destroy)
    report(plan, plan.nccl->destroy(communicator));
  for (const std::shared_ptr<Operation>& operation : plan.operations) operation->release();
  plan.operations.clear();
  plan.slots.clear();
  const std::scoped_lock lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

bool Ending::is_over() const {
  const std::scoped_lock lock(mutex_);
  return over_;
}

bool Ending::await(base::Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.when(), [&] { return over_; });
}

}  // namespace dtrun::collectives::nccl
