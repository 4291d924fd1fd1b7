#include <fmt/core.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <exception>

#include "dtrun/runtime/mp.h"
#include "process_state.h"
#include "spawn_failure.h"
#include "start_method.h"

namespace dtrun::mp {

using base::Error;
using base::ErrorCode;

// A process that reports the failure of another is blamed only when no other has failed by then.
constexpr auto kPatienceWithVictims = std::chrono::seconds(1);

struct ProcessContext::State {
  std::vector<std::shared_ptr<StartedProcess>> processes;  // by rank
  Deadline::Duration grace_period;
  std::exception_ptr thrown;

  bool all_ended() const;
  std::optional<SpawnFailure> first_failure() const;
  void await_an_end(Deadline deadline) const;
  void end_all() const noexcept;
  [[noreturn]] void fail(SpawnFailure failure);
  [[noreturn]] void fail(std::exception_ptr what);
};

bool ProcessContext::State::all_ended() const {
  return std::all_of(processes.begin(), processes.end(), [](const auto& process) {
    return process->wait_for_end(Deadline::after(Deadline::Duration::zero()));
  });
}

std::optional<SpawnFailure> ProcessContext::State::first_failure() const {
  std::vector<SpawnFailure> failures;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    StartedProcess& process = *processes[rank];
    const auto status = process.wait(Deadline::after(Deadline::Duration::zero()));
    if (!status) continue;
    SpawnFailure failure{static_cast<int>(rank), process.name(), process.pid(), *status,
                         process.outcome()};
    if (failure.has_failed()) failures.push_back(std::move(failure));
  }
  const auto first = std::min_element(failures.begin(), failures.end(), came_before);
  if (first == failures.end()) return std::nullopt;
  return *first;
}

void ProcessContext::State::await_an_end(Deadline deadline) const {
  std::vector<pollfd> running;
  for (const auto& process : processes)
    if (!process->wait_for_end(Deadline::after(Deadline::Duration::zero())))
      running.push_back({process->end_fd(), POLLIN, 0});
  ::poll(running.data(), running.size(), running.empty() ? 0 : deadline.poll_timeout_ms());
}

void ProcessContext::State::end_all() const noexcept {
  for (const auto& process : processes) process->signal(SIGTERM);
  const Deadline grace = Deadline::after(grace_period);
  for (const auto& process : processes) {
    if (process->wait_for_end(grace)) continue;
    process->signal(SIGKILL);
    process->wait_for_end(Deadline::never());
  }
}

void ProcessContext::State::fail(SpawnFailure first) {
  const Deadline patience = Deadline::after(kPatienceWithVictims);
  while (first.is_victim()) {
    const bool is_final = all_ended() || patience.expired();
    first = *first_failure();
    if (is_final) break;
    if (first.is_victim()) await_an_end(patience);
  }
  fail(exception_of(first));
}

void ProcessContext::State::fail(std::exception_ptr what) {
  thrown = std::move(what);
  end_all();
  std::rethrow_exception(thrown);
}

ProcessContext::ProcessContext(std::unique_ptr<State> state) : state_(std::move(state)) {}
ProcessContext::ProcessContext(ProcessContext&&) noexcept = default;
ProcessContext& ProcessContext::operator=(ProcessContext&&) noexcept = default;
ProcessContext::~ProcessContext() = default;

bool ProcessContext::join(Deadline deadline) try {
  if (state_->thrown) std::rethrow_exception(state_->thrown);
  while (true) {
    // In this order: one that ends in between must not be taken for one that ended well.
    const bool all_have_ended = state_->all_ended();
    if (auto failure = state_->first_failure()) state_->fail(std::move(*failure));
    if (all_have_ended) return true;
    if (deadline.expired()) return false;
    state_->await_an_end(deadline);
  }
} catch (const Error&) {
  if (!state_->thrown) state_->fail(std::current_exception());  // how one ended is not known
  throw;
}

std::vector<pid_t> ProcessContext::pids() const {
  std::vector<pid_t> result;
  for (const auto& process : state_->processes) result.push_back(process->pid());
  return result;
}

ProcessContext start_processes(const std::function<Task(int rank)>& task_of_rank,
                               const SpawnOptions& options, Site site) {
  if (options.nprocs < 1)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("mp::spawn with nprocs = {}", options.nprocs), "",
                "nprocs is how many processes to start: at least 1");
  auto state = std::make_unique<ProcessContext::State>();
  state->grace_period = options.grace_period;
  for (int rank = 0; rank < options.nprocs; ++rank) {
    Process process(task_of_rank(rank),
                    {.daemon = options.daemon, .name = "", .start_method = options.start_method},
                    site);
    process.state_->print_exception = false;
    try {
      process.start();
    } catch (...) {
      state->end_all();
      throw;
    }
    state->processes.push_back(process.state_->started);
  }
  ProcessContext context(std::move(state));
  if (options.join) context.join();
  return context;
}

}  // namespace dtrun::mp
