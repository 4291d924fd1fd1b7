// What a round of the rendezvous costs: N agents that join a head, one more that joins them, one
// that leaves, a restart after a failure; over real sockets of the loopback, the head on a thread
// of its own, all agents on one loop of another. Workers are not started: they exist in words only.
// Beside it PyTorch's elastic c10d rendezvous of 16 and 64 agents, which are threads of one
// process.
//
//   rendezvous_bench [--agents N,N,..] [--rounds N] [--torch FOLDER]
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/head_service.h"
#include "dtrun/rendezvous/membership.h"
#include "dtrun/rendezvous/round_clock.h"
#include "dtrun/rendezvous/tcp_store_server.h"
#include "support/command.h"

namespace {

using namespace dtrun;
using namespace dtrun::rendezvous;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

class Head {
 public:
  explicit Head(const rounds::RoundSettings& settings) {
    HeadServiceOptions options;
    options.endpoint_host = "127.0.0.1";
    options.listening_at = "127.0.0.1";
    options.max_newcomers = 20000;
    service_.emplace(loop_, rounds::make_head(settings, "bench", rounds::read_clock()), options,
                     HeadServiceCallbacks{[](const rounds::Note&) {}, [] {}});
    TcpStoreServerOptions door;
    door.on_agent = [this](base::UniqueFd connection, const std::string& bytes) {
      service_->adopt(std::move(connection), bytes);
    };
    door_.emplace(loop_, base::listen_tcp("127.0.0.1", 0), std::move(door));
    port_ = door_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Head() {
    loop_.stop();
    thread_.join();
  }
  HeadPlace place() const { return {"127.0.0.1", port_, {}}; }

 private:
  base::EventLoop loop_;
  std::optional<HeadService> service_;
  std::optional<TcpStoreServer> door_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

struct Agents;

class Agent {
 public:
  Agent(Agents& all, int number);
  void begin(HeadPlace place) { membership_->begin(std::move(place)); }
  void fail() {
    membership_->tell(rounds::WorkersFailed{round_, {}});
    gone();
  }
  void leave() { membership_->tell(rounds::OperatorStop{15}); }
  int round() const { return round_; }

 private:
  void gone() {
    membership_->tell(rounds::WorkersGone{round_, rounds::WorkersGone::How::kOtherwise});
  }

  std::optional<Membership> membership_;
  int round_ = rounds::kNoRound;
};

struct Agents {
  base::EventLoop loop;
  rounds::RoundSettings settings;
  std::list<Agent> members;
  int started = 0;  // in the newest round
  int newest = rounds::kNoRound;
  int ranks = 0;  // of it

  void start(int round, int nodes) {
    if (round > newest) started = 0;
    newest = round;
    ranks = nodes;
    ++started;
  }
  // Until a round of so many nodes, newer than that, runs on all of them.
  void until_round_after(int round, int nodes) {
    while (newest <= round || ranks != nodes || started != nodes)
      loop.run_some(base::Deadline::never());
  }
};

Agent::Agent(Agents& all, int number) {
  rounds::MemberSettings settings;
  settings.hello.run_id = "bench";
  settings.hello.host = fmt::format("node{}", number);
  settings.hello.min_nodes = all.settings.min_nodes;
  settings.hello.max_nodes = all.settings.max_nodes;
  settings.hello.agent = static_cast<std::uint64_t>(number) + 1;
  settings.after_loss = rounds::AfterLoss::kRejoin;
  membership_.emplace(
      all.loop, settings, Proof{},
      MembershipCallbacks{[this](const rounds::OpenStore& open) {
                            membership_->tell(rounds::StoreOpened{open.round, "", 1});
                          },
                          [this, &all](const rounds::StartWorkers& workers) {
                            round_ = workers.start.round;
                            all.start(round_, workers.start.group_world_size);
                          },
                          [this](const rounds::StopWorkers&) { gone(); },
                          [](const rounds::Finish&) {}, [](const rounds::MemberNote&) {}});
}

struct Figures {
  double start = 0;
  std::vector<double> join, leave, restart;
  double kilobytes_each = 0;
};

Figures measure(int count, int repetitions) {
  Agents agents;
  agents.settings.min_nodes = count;
  agents.settings.max_nodes = count + 1;
  agents.settings.max_restarts = 1000;
  agents.settings.last_call_timeout = std::chrono::milliseconds(1);
  const double before = resident_megabytes();
  Head head(agents.settings);
  Figures figures;
  Clock::time_point start = Clock::now();
  for (int i = 0; i < count; ++i) agents.members.emplace_back(agents, i).begin(head.place());
  agents.until_round_after(rounds::kNoRound, count);
  figures.start = milliseconds_since(start);
  figures.kilobytes_each = (resident_megabytes() - before) * 1024 / count;
  for (int i = 0; i < repetitions; ++i) {
    const auto timed = [&](std::vector<double>& into, int nodes, auto action) {
      const int round = agents.newest;
      start = Clock::now();
      action();
      agents.until_round_after(round, nodes);
      into.push_back(milliseconds_since(start));
    };
    timed(figures.join, count + 1,
          [&] { agents.members.emplace_back(agents, count + i).begin(head.place()); });
    timed(figures.leave, count, [&] { agents.members.back().leave(); });
    agents.members.pop_back();
    timed(figures.restart, count, [&] { agents.members.back().fail(); });
  }
  agents.members.clear();
  return figures;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const char* name, double few, double many, int count, int first) {
  fmt::print("  {:<8} {:8.2f} ms   {:6.2f} us for each agent more\n", name, many,
             count == first ? 0.0 : (many - few) * 1e3 / (count - first));
}

void compare_with_torch(const std::string& folder) {
  const std::string python = folder + "/bin/python";
  if (::access(python.c_str(), X_OK) != 0) {
    fmt::print("no PyTorch at '{}': left out (--torch names its folder)\n", folder);
    return;
  }
  const auto peer =
      testing_support::run_command({python, DTRUN_BENCH_FOLDER "/rendezvous_torch.py", "16", "64"},
                                   {.limit = std::chrono::minutes(10)});
  fmt::print("{}", peer.out);
  if (peer.exit_code != 0) fmt::print("PyTorch's rendezvous failed: {}\n", peer.describe());
}

struct Options {
  std::vector<int> agents = {16, 64, 256, 1024, 8192};
  int repetitions = 7;
  std::string torch = base::get_env("HOME").value_or("") + "/.cache/dtrun/torch-2.11.0";
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("What a round of the rendezvous costs.");
  app.add_option("--agents", options.agents, "how many, with commas between")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.repetitions, "of each")->check(CLI::PositiveNumber);
  app.add_option("--torch", options.torch, "where PyTorch is")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::optional<Figures> first;
  for (const int count : options.agents) {
    if (static_cast<rlim_t>(2 * count + 100) > limit.rlim_cur) {
      fmt::print("{} agents need {} file descriptors, and {} are allowed: left out\n", count,
                 2 * count, limit.rlim_cur);
      continue;
    }
    const Figures figures = measure(count, options.repetitions);
    if (!first) first = figures;
    const int few = options.agents.front();
    fmt::print("{} agents, {:.1f} KB each with both ends; medians of {}\n", count,
               figures.kilobytes_each, options.repetitions);
    print("start", first->start, figures.start, count, few);
    print("join", median(first->join), median(figures.join), count, few);
    print("leave", median(first->leave), median(figures.leave), count, few);
    print("restart", median(first->restart), median(figures.restart), count, few);
    std::fflush(stdout);
  }
  compare_with_torch(options.torch);
}
