// How long does it take to start and end N processes that do nothing? dtrun beside Open MPI, MPICH
// and a bare loop of fork and exec, all in one run, taking turns, so that the machine's moods hit
// all alike.
//
//     launch_bench [--runs R] [--dtrun PATH] N...        default: 15 runs of 4, 64, 256
//
// Prints a table of median milliseconds and of ratios to the bare loop. A peer that is not
// installed is left out and said so; a run that does not end in 20 s is killed and counted as
// "hung".
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Options {
  int runs = 15;
  std::string dtrun;
  std::vector<int> sizes;
};

struct Peer {
  std::string name;
  std::vector<std::string> command;  // "N" stands for the number of processes; empty: the bare loop
  std::vector<double> times;         // of the current size, in ms
  int hung = 0;
};

bool is_installed(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  for (const char* folder : {"/usr/bin/", "/usr/local/bin/"})
    if (::access((folder + program).c_str(), X_OK) == 0) return true;
  return false;
}

pid_t start(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    const int null = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  return pid;
}

// Milliseconds until the command has ended; nullopt when it hung or failed.
std::optional<double> time_command(const std::vector<std::string>& command) {
  const auto begin = Clock::now();
  const pid_t pid = start(command);
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  pollfd wait{pidfd, POLLIN, 0};
  const bool ended = ::poll(&wait, 1, 20'000) == 1;
  if (!ended) ::kill(-pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  const double elapsed = Milliseconds(Clock::now() - begin).count();
  ::close(pidfd);
  if (!ended || status != 0) return std::nullopt;
  return elapsed;
}

// The least that starting n processes can mean: fork and exec each, then wait for all.
double time_bare_loop(int n) {
  const auto begin = Clock::now();
  char program[] = "/bin/true";
  char* argv[] = {program, nullptr};
  for (int i = 0; i < n; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::execv(program, argv);
      ::_exit(127);
    }
  }
  for (int i = 0; i < n; ++i) ::wait(nullptr);
  return Milliseconds(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<Peer> make_peers(const Options& options) {
  std::vector<Peer> peers = {
      {"fork+exec loop", {}, {}, 0},
      {"dtrun", {options.dtrun, "--nproc_per_node=N", "/bin/true"}, {}, 0},
      {"MPICH", {"mpiexec.mpich", "-np", "N", "/bin/true"}, {}, 0},
      {"Open MPI",
       {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca",
        "odls_base_num_threads", "0", "-np", "N", "/bin/true"},
       {},
       0},
  };
  std::erase_if(peers, [](const Peer& peer) {
    const bool absent = !peer.command.empty() && !is_installed(peer.command[0]);
    if (absent) fmt::print("{} is not installed ({}): left out\n", peer.name, peer.command[0]);
    return absent;
  });
  return peers;
}

void run_once(Peer& peer, int n) {
  if (peer.command.empty()) {
    peer.times.push_back(time_bare_loop(n));
    return;
  }
  std::vector<std::string> command = peer.command;
  for (std::string& word : command) {
    if (word == "N") word = std::to_string(n);
    if (word.ends_with("=N")) word.replace(word.size() - 1, 1, std::to_string(n));
  }
  if (const auto elapsed = time_command(command)) {
    peer.times.push_back(*elapsed);
  } else {
    ++peer.hung;
  }
}

Options parse(int argc, char** argv) {
  Options options;
  const std::string self = argv[0];
  options.dtrun = self.substr(0, self.rfind('/') + 1) + "dtrun";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      options.runs = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--dtrun") == 0 && i + 1 < argc) {
      options.dtrun = argv[++i];
    } else {
      options.sizes.push_back(std::atoi(argv[i]));
    }
  }
  if (options.sizes.empty()) options.sizes = {4, 64, 256};
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::vector<Peer> peers = make_peers(options);
  fmt::print("{:>5}  {:<16}{:>12}{:>12}{:>14}{:>8}\n", "N", "", "median ms", "min ms",
             "x bare loop", "hung");
  for (const int n : options.sizes) {
    for (Peer& peer : peers) {
      peer.times.clear();
      peer.hung = 0;
      run_once(peer, n);  // warm-up
      peer.times.clear();
    }
    for (int run = 0; run < options.runs; ++run)
      for (Peer& peer : peers) run_once(peer, n);
    const double bare = median(peers[0].times);
    for (const Peer& peer : peers) {
      if (peer.times.empty()) {
        fmt::print("{:>5}  {:<16}{:>12}{:>12}{:>14}{:>8}\n", n, peer.name, "-", "-", "-",
                   peer.hung);
        continue;
      }
      fmt::print("{:>5}  {:<16}{:>12.1f}{:>12.1f}{:>14.2f}{:>8}\n", n, peer.name,
                 median(peer.times), *std::min_element(peer.times.begin(), peer.times.end()),
                 median(peer.times) / bare, peer.hung);
    }
  }
}
