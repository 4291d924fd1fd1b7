#include "launcher/private_machine.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dtrun::launcher {
namespace {

bool moved = false;

void raise_loopback() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP;
  ::ioctl(fd, SIOCSIFFLAGS, &request);
  ::close(fd);
}

// The kernel keeps the number of a closed connection for a minute (TIME_WAIT): nobody has that.
bool is_of_nobody(const std::string& table, const std::string& line) {
  return table.starts_with("tcp") && line.find(" 06 ") != std::string::npos;
}

std::string left_now() {
  std::string text;
  for (const std::string table : {"unix", "tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream file("/proc/self/net/" + table);
    std::string line;
    std::getline(file, line);  // the columns' names
    while (std::getline(file, line))
      if (!is_of_nobody(table, line)) text += table + ": " + line + "\n";
  }
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    text += entry.path().string() + "\n";
  return text;
}

}  // namespace

void PrivateMachine::move_to_one() {
  if (moved || ::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return;
  moved = ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          ::mount("none", "/dev/shm", "tmpfs", 0, nullptr) == 0;
  raise_loopback();
}

std::string PrivateMachine::left_within(std::chrono::milliseconds limit) {
  if (!moved) return "";
  // A process that ends has no command line any more when it closes its sockets.
  const auto until = std::chrono::steady_clock::now() + limit;
  std::string text = left_now();
  while (!text.empty() && std::chrono::steady_clock::now() < until) {
    ::sched_yield();
    text = left_now();
  }
  return text;
}

}  // namespace dtrun::launcher
