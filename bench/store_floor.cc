#include "store_floor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "dtrun/base/socket.h"

namespace dtrun::bench {
namespace {

constexpr std::size_t kBytes = 4;

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void bind_to_first_core() {
  cpu_set_t allowed, one;
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0 && cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

[[noreturn]] void answer(int listener) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = ::accept(listener, nullptr, nullptr);
  send_at_once(fd);
  char bytes[kBytes];
  while (::recv(fd, bytes, kBytes, MSG_WAITALL) == kBytes) ::send(fd, bytes, kBytes, MSG_NOSIGNAL);
  ::_exit(0);
}

double ask(std::uint16_t port, int trips) {
  const base::UniqueFd fd = base::connect_tcp("127.0.0.1", port, base::Deadline::never());
  const int flags = ::fcntl(fd.get(), F_GETFL);
  ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
  send_at_once(fd.get());
  std::vector<double> times;
  char bytes[kBytes] = {};
  for (int i = 0; i < trips; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ::send(fd.get(), bytes, kBytes, MSG_NOSIGNAL);
    if (::recv(fd.get(), bytes, kBytes, MSG_WAITALL) != kBytes) {
      fmt::print(stderr, "store_bench: two bare sockets do not speak\n");
      std::exit(1);
    }
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

double bare_round_trip_us(int trips, Cores cores) {
  cpu_set_t before;
  ::sched_getaffinity(0, sizeof before, &before);
  if (cores == Cores::kOne) bind_to_first_core();
  double result = 0;
  {
    const base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
    const pid_t other = ::fork();
    if (other == 0) answer(listener.get());
    result = ask(base::local_port(listener.get()), trips);
    ::waitpid(other, nullptr, 0);
  }
  ::sched_setaffinity(0, sizeof before, &before);
  return result;
}

}  // namespace dtrun::bench
