#include "fork_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>

#include "child_environment.h"
#include "descriptor_message.h"
#include "dtrun/base/child_process.h"
#include "dtrun/base/error.h"
#include "dtrun/base/process_tree.h"
#include "fresh_image.h"
#include "standard_streams.h"

namespace dtrun::mp {
namespace {

using base::Deadline;

// One per process, since a clean image is worth keeping.
struct Server {
  pid_t owner;
  base::ChildProcess process;  // does not know its number once it has ended
  pid_t pid;
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
  const pid_t pid = process.pid();
  return new Server{::getpid(), std::move(process), pid, std::move(ours)};
}

// The one of this process, and alive.
Server& running_server() {
  if (the_server != nullptr && the_server->owner != ::getpid()) the_server = nullptr;
  if (the_server != nullptr &&
      (!the_server->process.running() ||
       the_server->process.wait(Deadline::after(Deadline::Duration::zero())))) {
    delete the_server;
    the_server = nullptr;
  }
  if (the_server == nullptr) the_server = start_server();
  return *the_server;
}

// An end of the connection is seen a little before the end of the process.
constexpr auto kEndPatience = std::chrono::seconds(5);

base::Error took_no_request(const Server& server) {
  return {base::ErrorCode::kSystem,
          fmt::format("the forkserver (pid {}) took no request", server.pid),
          "it holds two descriptors for each of its children, and may have no more",
          "raise the limit of open files (ulimit -n) before the first start"};
}

base::Error server_gone(pid_t pid) {
  return {base::ErrorCode::kSystem, fmt::format("the forkserver (pid {}) has ended", pid),
          "it was killed, or main() returned before it came to mp::run_if_child()",
          "make mp::run_if_child(); the first line of main(); the next start makes a new server"};
}

base::Error cannot_copy(const Server& server, int error_number) {
  return base::system_error(fmt::format("copy the forkserver (pid {})", server.pid), error_number,
                            error_number == EMFILE
                                ? "raise the limit of open files (ulimit -n) before the first start"
                                : "raise the limit of processes (ulimit -u, pids.max)");
}

base::UniqueFd open_working_folder() {
  base::UniqueFd folder(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder)
    throw base::system_error("open the working folder",
                             "raise the limit of open files (ulimit -n)");
  return folder;
}

// None: the server has ended, and the function has not begun.
std::optional<StartedProcess::Parts> ask(Server& server, const Order& order) {
  base::UniqueFd hand_over = make_hand_over(order);
  auto [ours, theirs] = make_message_sockets();
  const base::UniqueFd output = duplicate_stream(STDOUT_FILENO);
  const base::UniqueFd error = duplicate_stream(STDERR_FILENO);
  const base::UniqueFd folder = open_working_folder();
  std::optional<DescriptorMessage> answer;
  if (send_message(server.control.get(), 0,
                   {hand_over.get(), theirs.get(), output.get(), error.get(), folder.get()})) {
    theirs.reset();
    answer = receive_message(ours.get());
  }
  if (!answer) {
    // With its end its children have got their death signal: one that has not begun never will.
    if (!server.process.wait(Deadline::after(kEndPatience))) throw took_no_request(server);
    if (read_outcome(hand_over.get()).state == Outcome::State::kNotBegun) return std::nullopt;
    throw server_gone(server.pid);
  }
  if (answer->number < 0) throw cannot_copy(server, -answer->number);
  if (answer->fds.empty()) {
    // There was no room for its pidfd. The server keeps its number as long as this socket is open.
    base::signal_process_group(answer->number, SIGKILL);
    throw base::system_error("watch a process of the forkserver", EMFILE,
                             "raise the limit of open files (ulimit -n)");
  }
  return StartedProcess::Parts{answer->number, std::move(answer->fds[0]), std::move(hand_over),
                               std::move(ours)};
}

}  // namespace

StartedProcess::Parts start_served(Order order) {
  const std::lock_guard held(server_lock);
  order.environment = child_environment().as_strings();
  // One that was killed may not be known to be dead before it is asked; a new one is not tried
  // again.
  if (auto parts = ask(running_server(), order)) return std::move(*parts);
  Server& server = running_server();
  if (auto parts = ask(server, order)) return std::move(*parts);
  throw server_gone(server.pid);
}

void stop_fork_server() {
  const std::lock_guard held(server_lock);
  if (the_server == nullptr || the_server->owner != ::getpid()) return;
  delete the_server;
  the_server = nullptr;
}

}  // namespace dtrun::mp
