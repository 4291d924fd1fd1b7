#include "store_contender.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store_server.h"

namespace dtrun::bench {

namespace {

// PyTorch's server writes a line for each connection that ends, which nobody reads.
std::vector<std::string> without_messages(const std::vector<std::string>& command) {
  std::vector<std::string> words = {"sh", "-c", "exec \"$@\" 2> /dev/null", "sh"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace

StoreContender::StoreContender(std::string name, Speaks speaks,
                               const std::vector<std::string>& command,
                               const std::map<std::string, std::optional<std::string>>& environment)
    : name_(std::move(name)),
      speaks_(speaks),
      command_(without_messages(command),
               {.environment = environment,
                .limit = std::chrono::hours(24),
                .input = testing_support::CommandOptions::Input::kPipe}) {
  const auto port = command_.next_line("");
  if (!port) {
    fmt::print(stderr, "store_bench: {} did not tell its port\n", name_);
    std::exit(1);
  }
  port_ = static_cast<std::uint16_t>(std::stoi(*port));
}

StoreContender::~StoreContender() {
  command_.close_input();
  command_.finish();
}

double StoreContender::resident_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid()));
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
