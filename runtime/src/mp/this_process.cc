#include "this_process.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "dtrun/base/log.h"
#include "fork_server.h"

namespace dtrun::mp {
namespace {

using base::Deadline;

// For a daemonic child to end by SIGTERM.
constexpr auto kGrace = std::chrono::seconds(5);

// Never destroyed: exit handlers use it.
std::atomic<ThisProcess*> the_process{nullptr};

}  // namespace

ThisProcess::ThisProcess() : owner_(::getpid()) {}

ThisProcess& ThisProcess::get() {
  static std::once_flag once;
  std::call_once(once, [] { the_process = new ThisProcess; });
  return *the_process;
}

// Replaced, not emptied: to destroy what a copy of the parent holds could touch the parent's
// children.
void ThisProcess::begin_as_child(const Order& order) {
  ThisProcess& before = get();
  auto* const process = new ThisProcess;
  process->announced_ = before.is_announced();
  process->copied_from_ = &before;
  process->name_ = order.process_name;
  process->daemon_ = order.daemon;
  process->inherited_start_method_ = order.start_method;
  the_process = process;
}

std::string ThisProcess::start_method() {
  const std::lock_guard held(lock_);
  return start_method_.value_or(inherited_start_method_);
}

bool ThisProcess::set_start_method(const std::string& method, Force force) {
  const std::lock_guard held(lock_);
  if (start_method_ && force == Force::no) return false;
  start_method_ = method;
  return true;
}

std::string ThisProcess::next_child_name() {
  const std::lock_guard held(lock_);
  return fmt::format("{}{}", name_.empty() ? "Process-" : name_ + ":", ++children_named_);
}

void ThisProcess::add_child(std::shared_ptr<StartedProcess> child) {
  static std::once_flag once;
  std::call_once(once, [] { std::atexit([] { ThisProcess::get().end_children(); }); });
  forget_ended_children();
  const std::lock_guard held(lock_);
  children_.push_back(std::move(child));
}

std::vector<std::shared_ptr<StartedProcess>> ThisProcess::children() {
  const std::lock_guard held(lock_);
  return children_;
}

// Those whose Process the user has dropped, above all: nobody else would reap them.
void ThisProcess::forget_ended_children() {
  const std::lock_guard held(lock_);
  std::erase_if(children_, [](const auto& child) {
    return child->wait_for_end(Deadline::after(Deadline::Duration::zero()));
  });
}

void ThisProcess::end_children() noexcept {
  // A process that somebody has forked off: these are not its children.
  if (owner_ != ::getpid()) return;
  try {
    const auto children = this->children();
    for (const auto& child : children)
      if (child->daemon()) child->signal(SIGTERM);
    const Deadline grace = Deadline::after(kGrace);
    for (const auto& child : children) {
      if (!child->daemon() || child->wait_for_end(grace)) continue;
      child->signal(SIGKILL);
      child->wait_for_end(Deadline::never());
    }
    for (const auto& child : children) child->wait_for_end(Deadline::never());
    stop_fork_server();
  } catch (const base::Error& error) {
    base::log::error(base::log::Component::kRuntime, "at exit: {}", error.what());
  }
}

}  // namespace dtrun::mp
