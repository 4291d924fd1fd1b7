#include "child_body.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "current_world.h"
#include "exception_text.h"
#include "standard_streams.h"
#include "this_process.h"

namespace dtrun::mp {

namespace {

void print_to_stderr(const Order& order, const std::string& text) {
  std::fflush(stdout);
  const std::string line = fmt::format("{} (pid {}): {}\n", order.process_name, ::getpid(), text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// False where the parent cannot be told, which is no reason to keep the exception from everybody.
bool tell_parent(int hand_over, const Order& order, const runtime::ExceptionText& thrown) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  try {
    write_raised(hand_over, {.state = Outcome::State::kRaised,
                             .time_ns = std::chrono::nanoseconds(now).count(),
                             .error_code = thrown.error_code,
                             .type = thrown.type,
                             .text = thrown.text});
    return true;
  } catch (const base::Error& error) {
    print_to_stderr(order, error.what());
    return false;
  }
}

}  // namespace

int run_body(int hand_over, const Order& order, const std::function<void()>& body) noexcept {
  try {
    mark_begun(hand_over);
    body();
    return 0;
  } catch (...) {
    const runtime::ExceptionText thrown = runtime::current_exception_text();
    const bool told = tell_parent(hand_over, order, thrown);
    if (!told || order.print_exception) print_to_stderr(order, thrown.describe());
    return 1;
  }
}

void leave_copy(int exit_code) noexcept {
  dist::leave_world_at_exit();
  ThisProcess::get().end_children();
  flush_standard_streams();
  ::_exit(exit_code);
}

}  // namespace dtrun::mp
