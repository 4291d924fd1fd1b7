#include "support/own_port.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>
#include <utility>

namespace dtrun::testing_support {
namespace {

// Above /proc/sys/net/ipv4/ip_local_port_range; below it are the labs' etcds and Slurms.
constexpr int kFirst = 61000;
constexpr int kCount = 4500;

// A name that only one process of a network namespace can have, and that goes with its socket, as a
// port does. Invalid: another test has it.
int claim(int port) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "dtrun test's port " + std::to_string(port);
  ::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  ::close(fd);
  return -1;
}

// At every address, as those listen that are no test's.
bool is_free(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     ::listen(fd, 1) == 0;
  ::close(fd);
  return bound;
}

}  // namespace

OwnPort::OwnPort() {
  for (int i = 0; i < kCount; ++i) {
    // Neighbours in time begin far from each other.
    const int port = kFirst + static_cast<int>((::getpid() * 7LL + i) % kCount);
    claim_ = claim(port);
    if (claim_ >= 0 && is_free(port)) {
      number_ = static_cast<std::uint16_t>(port);
      return;
    }
    if (claim_ >= 0) ::close(claim_);
  }
  throw std::runtime_error("no port is free for a test");
}

OwnPort::~OwnPort() {
  if (claim_ >= 0) ::close(claim_);
}

OwnPort::OwnPort(OwnPort&& other) noexcept
    : number_(other.number_), claim_(std::exchange(other.claim_, -1)) {}

OwnPort& OwnPort::operator=(OwnPort&& other) noexcept {
  std::swap(number_, other.number_);
  std::swap(claim_, other.claim_);
  return *this;
}

}  // namespace dtrun::testing_support
