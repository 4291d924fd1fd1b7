#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include "copied_image.h"
#include "dtrun/runtime/mp.h"
#include "fork_server.h"
#include "fresh_image.h"
#include "function_table.h"
#include "process_state.h"
#include "start_method.h"
#include "this_process.h"

namespace dtrun::mp {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kFirstLine = "make mp::run_if_child(); the first line of main()";

void require_announced(StartMethod method) {
  if (method == StartMethod::kFork || ThisProcess::get().is_announced()) return;
  throw Error(ErrorCode::kUsage,
              "a process cannot be started: main() has not called mp::run_if_child()",
              "a new process begins in main() again, and would run all of it, this line included",
              kFirstLine);
}

void require_not_daemonic() {
  if (!ThisProcess::get().daemon()) return;
  throw Error(
      ErrorCode::kUsage, "daemonic processes are not allowed to have children",
      fmt::format("this is '{}' (pid {}), which is daemonic: it is ended without notice when "
                  "its parent ends",
                  ThisProcess::get().name(), ::getpid()),
      "start it with {.daemon = false}");
}

void require_exit_statuses() {
  struct sigaction action {};
  ::sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler != SIG_IGN && (action.sa_flags & SA_NOCLDWAIT) == 0) return;
  throw Error(ErrorCode::kUsage, "a process cannot be started: this program ignores SIGCHLD",
              "then the system throws away how children end, and nobody could join them",
              "signal(SIGCHLD, SIG_DFL)");
}

StartedProcess::Parts start_spawned(const Order& order) {
  base::UniqueFd hand_over = make_hand_over(order);
  auto [pid, pidfd] = start_fresh_image(hand_over.get()).release();
  return {pid, std::move(pidfd), std::move(hand_over), {}};
}

}  // namespace

Process::Process(Task task, ProcessOptions options, Site site)
    : state_(std::make_unique<State>(
          State{std::move(task), std::move(options), site, ::getpid(), nullptr})) {
  if (state_->options.name.empty()) state_->options.name = ThisProcess::get().next_child_name();
  if (!state_->options.start_method.empty()) parse_start_method(state_->options.start_method);
}
Process::Process(Process&&) noexcept = default;
Process& Process::operator=(Process&&) noexcept = default;
Process::~Process() = default;

StartedProcess& Process::State::require_started(const char* call) const {
  if (creator != ::getpid())
    throw Error(
        ErrorCode::kUsage,
        fmt::format("process '{}' belongs to pid {}, not to this process", options.name, creator),
        "a copy of a process does not get its children", "use it where it was made");
  if (!started)
    throw Error(ErrorCode::kUsage,
                fmt::format("{}() of process '{}' before start()", call, options.name));
  return *started;
}

void Process::start() {
  State& state = *state_;
  if (state.started)
    throw Error(ErrorCode::kUsage,
                fmt::format("process '{}' (pid {}) has been started already", state.options.name,
                            state.started->pid()),
                "", "a Process runs once: make another");
  Order order = state.make_order();
  const StartMethod method = parse_start_method(
      state.options.start_method.empty() ? order.start_method : state.options.start_method);
  // These refusals come before anything is started.
  require_not_daemonic();
  require_exit_statuses();
  require_announced(method);
  // A copy of this process has the function and its arguments already, even a lambda.
  if (method != StartMethod::kFork) {
    order.function = find_function(state.task.function, state.task.type, state.site).name;
    state.task.encode(order.arguments);
  }
  StartedProcess::Parts parts = method == StartMethod::kSpawn  ? start_spawned(order)
                                : method == StartMethod::kFork ? start_copy(order, state.task.call)
                                                               : start_served(order);
  state.started =
      std::make_shared<StartedProcess>(order.process_name, order.daemon, std::move(parts));
  ThisProcess::get().add_child(state.started);
  state.task = {};  // the arguments are the child's now
}

Order Process::State::make_order() const {
  Order order;
  order.process_name = options.name;
  order.program_name = program_name();
  order.start_method = get_start_method();
  order.daemon = options.daemon;
  order.print_exception = print_exception;
  return order;
}

bool Process::join(Deadline deadline) {
  StartedProcess& started = state_->require_started("join");
  const auto status = started.wait(deadline);
  // Not after a signal: that ended the child, whether it had begun or not, and exitcode() tells it.
  if (status && status->signal == 0 && started.outcome().state == Outcome::State::kNotBegun)
    throw never_begun(fmt::format("process '{}' (pid {})", started.name(), started.pid()), *status);
  return status.has_value();
}

base::Error never_begun(const std::string& who, const base::ExitStatus& status) {
  return {ErrorCode::kUsage,
          fmt::format("{} ended with {} without having run its function", who, status.describe()),
          "its main() returned, or exited, before it came to mp::run_if_child()", kFirstLine};
}

bool Process::is_alive() {
  if (!state_->started) return false;
  return !state_->require_started("is_alive")
              .wait_for_end(Deadline::after(Deadline::Duration::zero()));
}

std::optional<int> Process::exitcode() {
  if (!state_->started) return std::nullopt;
  const auto status =
      state_->require_started("exitcode").wait(Deadline::after(Deadline::Duration::zero()));
  if (!status) return std::nullopt;
  // As Python's multiprocessing has it.
  return status->signal != 0 ? -status->signal : status->code;
}

std::optional<pid_t> Process::pid() const {
  if (!state_->started) return std::nullopt;
  return state_->started->pid();
}
const std::string& Process::name() const {
  return state_->options.name;
}
bool Process::daemon() const {
  return state_->options.daemon;
}
void Process::terminate() {
  state_->require_started("terminate").signal(SIGTERM);
}
void Process::kill() {
  state_->require_started("kill").signal(SIGKILL);
}

}  // namespace dtrun::mp
