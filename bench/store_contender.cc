#include "store_contender.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store_server.h"

namespace dtrun::bench {
namespace {

[[noreturn]] void become(const std::vector<std::string>& command,
                         const std::vector<std::string>& environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const std::string& setting : environment) ::putenv(const_cast<char*>(setting.c_str()));
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

StoreContender::StoreContender(std::string name, Speaks speaks,
                               const std::vector<std::string>& command,
                               const std::vector<std::string>& environment)
    : name_(std::move(name)), speaks_(speaks) {
  base::Pipe input = base::make_pipe(), output = base::make_pipe();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(input.read_end.get(), 0);
    ::dup2(output.write_end.get(), 1);
    // PyTorch's server writes a line for each connection that ends.
    ::dup2(::open("/dev/null", O_WRONLY), 2);
    become(command, environment);
  }
  output.write_end.reset();
  input_ = input.write_end.release();
  // To the end of the line: Python may write it in two pieces, and does not outlive a pipe that was
  // closed between them.
  std::string text;
  for (char byte = 0; byte != '\n'; text += byte)
    if (::read(output.read_end.get(), &byte, 1) != 1) {
      fmt::print(stderr, "store_bench: {} did not tell its port\n", name_);
      std::exit(1);
    }
  port_ = static_cast<std::uint16_t>(std::atoi(text.c_str()));
}

StoreContender::~StoreContender() {
  ::close(input_);
  ::waitpid(pid_, nullptr, 0);
}

double StoreContender::resident_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid_));
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

OneCore::OneCore(const StoreContender& server) : server_(server) {
  ::sched_getaffinity(0, sizeof before_, &before_);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0 && cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
  bind_all(one);
}

OneCore::~OneCore() {
  bind_all(before_);
}

// A thread that ends meanwhile needs none.
void OneCore::bind_all(const cpu_set_t& cpus) const {
  ::sched_setaffinity(0, sizeof cpus, &cpus);
  const std::string threads = fmt::format("/proc/{}/task", server_.pid());
  for (const auto& thread : std::filesystem::directory_iterator(threads))
    ::sched_setaffinity(std::stoi(thread.path().filename()), sizeof cpus, &cpus);
}

void raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void serve_dtrun() {
  base::EventLoop loop;
  rendezvous::TcpStoreServerOptions options;
  options.max_newcomers = 20'000;
  const rendezvous::TcpStoreServer server(loop, base::listen_tcp("127.0.0.1", 0), options);
  fmt::print("{}\n", server.port());
  std::fflush(stdout);
  base::FdWatch end(loop, 0);
  end.on_readable([&] { loop.stop(); });
  loop.run();
}

}  // namespace dtrun::bench
