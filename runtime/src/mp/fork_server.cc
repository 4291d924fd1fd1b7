#include "fork_server.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <mutex>

#include "child_environment.h"
#include "descriptor_message.h"
#include "dtrun/base/child_process.h"
#include "dtrun/base/error.h"
#include "fresh_image.h"
#include "standard_streams.h"

namespace dtrun::mp {
namespace {

using base::Deadline;

// One per process, since a clean image is worth keeping.
struct Server {
  pid_t owner;
  base::ChildProcess process;
  base::UniqueFd control;
};
std::mutex server_lock;
// A copy of this process leaves it alone, hence the bare pointer: to destroy it would kill it.
Server* the_server = nullptr;

Server* start_server() {
  auto [ours, theirs] = make_message_sockets();
  Order order;
  order.kind = Order::Kind::kServe;
  order.program_name = program_name();
  order.control_fd = theirs.get();
  const base::UniqueFd hand_over = make_hand_over(order);
  base::ChildProcess process = start_fresh_image(hand_over.get(), {theirs.get()});
  return new Server{::getpid(), std::move(process), std::move(ours)};
}

// The one of this process, and alive.
Server& running_server() {
  if (the_server != nullptr && the_server->owner != ::getpid()) the_server = nullptr;
  if (the_server != nullptr &&
      the_server->process.wait(Deadline::after(Deadline::Duration::zero()))) {
    delete the_server;
    the_server = nullptr;
  }
  if (the_server == nullptr) the_server = start_server();
  return *the_server;
}

base::Error server_gone(pid_t pid) {
  return {base::ErrorCode::kSystem, fmt::format("the forkserver (pid {}) has ended", pid),
          "it was killed, or main() returned before it came to mp::run_if_child()",
          "make mp::run_if_child(); the first line of main(); the next start makes a new server"};
}

}  // namespace

StartedProcess::Parts start_served(Order order) {
  const std::lock_guard held(server_lock);
  Server& server = running_server();
  const pid_t server_pid = server.process.pid();
  order.environment = child_environment().as_strings();
  order.working_folder = std::filesystem::current_path().string();
  base::UniqueFd hand_over = make_hand_over(order);
  auto [ours, theirs] = make_message_sockets();
  const base::UniqueFd output = duplicate_stream(STDOUT_FILENO);
  const base::UniqueFd error = duplicate_stream(STDERR_FILENO);
  const bool sent = send_message(server.control.get(), 0,
                                 {hand_over.get(), theirs.get(), output.get(), error.get()});
  theirs.reset();
  if (!sent) throw server_gone(server_pid);
  auto answer = receive_message(ours.get());
  if (!answer) throw server_gone(server_pid);
  if (answer->number < 0)
    throw base::system_error(fmt::format("copy the forkserver (pid {})", server_pid),
                             -answer->number, "raise the limit of processes (ulimit -u, pids.max)");
  return {answer->number, std::move(answer->fds.at(0)), std::move(hand_over), std::move(ours)};
}

void stop_fork_server() {
  const std::lock_guard held(server_lock);
  if (the_server == nullptr || the_server->owner != ::getpid()) return;
  delete the_server;
  the_server = nullptr;
}

}  // namespace dtrun::mp
