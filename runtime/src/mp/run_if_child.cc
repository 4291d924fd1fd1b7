#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

#include "child_body.h"
#include "dtrun/base/env.h"
#include "dtrun/runtime/mp.h"
#include "fork_server.h"
#include "fresh_image.h"
#include "function_table.h"
#include "this_process.h"

namespace dtrun::mp {
namespace {

// The descriptor that this process's parent has handed over; none where it is nobody's child.
base::UniqueFd take_hand_over() {
  const auto variable = base::get_env(kHandOverVariable);
  if (!variable) return {};
  ::unsetenv(kHandOverVariable);
  const auto colon = variable->find(':');
  const auto fd = base::parse_integer(std::string_view(*variable).substr(0, colon));
  const auto parent = colon == std::string::npos
                          ? std::nullopt
                          : base::parse_integer(std::string_view(*variable).substr(colon + 1));
  // Another program of dtrun's, started by an image that has not come this far.
  if (!fd || parent != ::getppid()) return {};
  ::fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC);
  return base::UniqueFd(static_cast<int>(*fd));
}

}  // namespace

void run_if_child() {
  ThisProcess::get().announce();
  const base::UniqueFd hand_over = take_hand_over();
  if (!hand_over) return;
  const Order order = take_order(hand_over.get());
  ::prctl(PR_SET_NAME, order.program_name.c_str());
  if (order.kind == Order::Kind::kServe) serve_forks(base::UniqueFd(order.control_fd));
  ThisProcess::begin_as_child(order);
  std::exit(run_body(hand_over.get(), order, [&] {
    const FunctionEntry entry = find_function(order.function);
    wire::Reader arguments(order.arguments);
    entry.run(entry.function, arguments);
  }));
}

}  // namespace dtrun::mp
