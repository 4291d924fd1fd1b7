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

int run_body(int hand_over, const Order& order, const std::function<void()>& body) {
  try {
    mark_begun(hand_over);
    body();
    return 0;
  } catch (...) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const runtime::ExceptionText thrown = runtime::current_exception_text();
    write_raised(hand_over, {.state = Outcome::State::kRaised,
                             .time_ns = std::chrono::nanoseconds(now).count(),
                             .error_code = thrown.error_code,
                             .type = thrown.type,
                             .text = thrown.text});
    if (order.print_exception) {
      std::fflush(stdout);
      const std::string line =
          fmt::format("{} (pid {}): {}\n", order.process_name, ::getpid(), thrown.describe());
      std::fwrite(line.data(), 1, line.size(), stderr);
    }
    return 1;
  }
}

void leave_copy(int exit_code) {
  dist::leave_world_at_exit();
  ThisProcess::get().end_children();
  flush_standard_streams();
  ::_exit(exit_code);
}

}  // namespace dtrun::mp
