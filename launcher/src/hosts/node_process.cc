#include "hosts/node_process.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>

#include "dtrun/base/error.h"
#include "hosts/host_order.h"
#include "hosts/host_place.h"

namespace dtrun::launcher {
namespace {

constexpr int kExitOrphan = 125;

struct Pipes {
  base::Pipe order = base::make_pipe(), in = base::make_pipe(), out = base::make_pipe(),
             err = base::make_pipe();
};

std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 16 << 10> buffer;
  while (true) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void set_variables(const HostOrder& order) {
  for (const auto& [name, value] : order.environment) ::setenv(name.c_str(), value.c_str(), 1);
  for (const std::string& name : variables_of_hosts()) ::unsetenv(name.c_str());
}

// Where ps finds a process's line: its arguments and, behind them, its variables, which move away.
class LineInPs {
 public:
  LineInPs() {
    std::ifstream stat("/proc/self/stat");
    const std::string text{std::istreambuf_iterator<char>(stat), {}};
    std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
    constexpr int kFirst = 3, kArgumentsBegin = 48, kVariablesEnd = 51;  // proc(5)
    std::uintptr_t begin = 0, end = 0;
    std::string word;
    for (int field = kFirst; field <= kVariablesEnd && fields >> word; ++field) {
      if (field == kArgumentsBegin) begin = std::strtoull(word.c_str(), nullptr, 10);
      if (field == kVariablesEnd) end = std::strtoull(word.c_str(), nullptr, 10);
    }
    if (begin == 0 || end <= begin) return;
    place_ = {reinterpret_cast<char*>(begin), end - begin};
    for (char** variable = ::environ; *variable != nullptr; ++variable)
      *variable = ::strdup(*variable);
  }

  /// As much of it as there is room for.
  void write(const std::vector<std::string>& arguments) const {
    if (place_.empty()) return;
    std::string line = own_program_path();
    for (const std::string& argument : arguments) line += " " + argument;
    ::memset(place_.data(), 0, place_.size());
    ::memcpy(place_.data(), line.data(), std::min(line.size(), place_.size() - 1));
  }

 private:
  std::span<char> place_;
};

[[noreturn]] void become_node(Pipes pipes, int listener, pid_t relay, const NodeProcess::Run& run) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != relay) ::_exit(kExitOrphan);
  ::dup2(pipes.in.read_end.get(), STDIN_FILENO);
  ::dup2(pipes.err.write_end.get(), STDERR_FILENO);
  pipes.order.write_end.reset();
  const LineInPs line;
  const std::string text = read_to_end(pipes.order.read_end.get());
  if (text.empty()) ::_exit(0);
  const HostOrder order = HostOrder::parse(text);
  if (order.nodes.size() > 1) ::dup2(pipes.out.write_end.get(), STDOUT_FILENO);
  pipes = {base::Pipe(), base::Pipe(), base::Pipe(), base::Pipe()};
  enter_folder(order.folder, "--wdir");
  set_variables(order);
  const std::vector<std::string> arguments = node_arguments(
      order, order.nodes.front(), listener >= 0 ? std::optional(listener) : std::nullopt);
  line.write(arguments);
  std::exit(run(arguments));
}

}  // namespace

NodeProcess NodeProcess::fork(int listener, const Run& run) {
  Pipes pipes;
  NodeProcess process;
  const pid_t relay = ::getpid();
  process.pid = ::fork();
  if (process.pid < 0) throw base::system_error("fork the host's dtrun");
  if (process.pid == 0) become_node(std::move(pipes), listener, relay, run);
  ::setpgid(process.pid, process.pid);
  process.order = std::move(pipes.order.write_end);
  process.input = std::move(pipes.in.write_end);
  process.out = std::move(pipes.out.read_end);
  process.err = std::move(pipes.err.read_end);
  return process;
}

}  // namespace dtrun::launcher
