#include "dtrun/base/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "dtrun/base/backoff.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::base {
namespace {

struct AddressListDelete {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressListDelete>;

// Null, with the reason in `cause`, where the name does not resolve.
AddressList resolve(const std::string& host, std::uint16_t port, int flags, std::string& cause) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) {
    cause = status == EAI_SYSTEM ? strerrordesc_np(errno) : ::gai_strerror(status);
    return nullptr;
  }
  return AddressList(list);
}

std::string numeric_address(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  if (::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  // An IPv4 peer of a socket of both families.
  const std::string_view mapped = "::ffff:";
  std::string result(text);
  if (result.rfind(mapped, 0) == 0) result.erase(0, mapped.size());
  return result;
}

std::string numeric_address(const sockaddr_storage& address, socklen_t length) {
  return numeric_address(reinterpret_cast<const sockaddr*>(&address), length);
}

// One attempt at one address; an invalid fd and `cause` on refusal.
UniqueFd try_connect(const addrinfo& address, Deadline deadline, std::string& cause) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    cause = strerrordesc_np(errno);
    return {};
  }
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) {
      cause = strerrordesc_np(errno);
      return {};
    }
    pollfd wait{fd.get(), POLLOUT, 0};
    if (::poll(&wait, 1, deadline.poll_timeout_ms()) <= 0) {
      cause = "no answer";
      return {};
    }
    int error_number = 0;
    socklen_t length = sizeof error_number;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &length);
    if (error_number != 0) {
      cause = strerrordesc_np(error_number);
      return {};
    }
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// The addresses of families that this machine has. Where those are none, all: an address of the
// loopback is not counted as having its family.
AddressList resolve_to_connect(const std::string& host, std::uint16_t port, std::string& cause) {
  AddressList list = resolve(host, port, AI_ADDRCONFIG, cause);
  return list ? std::move(list) : resolve(host, port, 0, cause);
}

// How long one of several addresses may stay silent before the next one gets its turn.
constexpr Deadline::Duration kFirstPatience = std::chrono::seconds(1);
constexpr Deadline::Duration kLongestPatience = std::chrono::seconds(16);

// One round over all addresses; an invalid fd, and each one's cause, where none is reached.
UniqueFd try_addresses(const addrinfo& list, Deadline::Duration patience, Deadline deadline,
                       std::string& cause) {
  const bool is_only_one = list.ai_next == nullptr;
  std::string causes;
  for (const addrinfo* address = &list; address != nullptr; address = address->ai_next) {
    const Deadline turn = is_only_one ? deadline : Deadline::after(patience).earlier(deadline);
    UniqueFd fd = try_connect(*address, turn, cause);
    if (fd) return fd;
    causes += fmt::format("{}{}: {}", causes.empty() ? "" : "; ",
                          numeric_address(address->ai_addr, address->ai_addrlen), cause);
  }
  if (!is_only_one) cause = causes;
  return {};
}

UniqueFd try_host(const std::string& host, std::uint16_t port, Deadline::Duration patience,
                  Deadline deadline, std::string& cause) {
  const AddressList list = resolve_to_connect(host, port, cause);
  return list ? try_addresses(*list, patience, deadline, cause) : UniqueFd();
}

Error unreachable(const std::string& host, std::uint16_t port, Deadline::Clock::time_point start,
                  const std::string& cause) {
  return Error(
      ErrorCode::kConnection,
      fmt::format("cannot reach {} for {}", HostPort{host, port}.to_string(),
                  format_duration(Deadline::Clock::now() - start)),
      cause,
      "start the process that listens there first; check the address, the port and the firewall");
}

// Waits until the fd is ready for `events` or throws kTimeout.
void wait_ready(int fd, short events, Deadline deadline, const char* action) {
  pollfd wait{fd, events, 0};
  while (true) {
    const int ready = ::poll(&wait, 1, deadline.poll_timeout_ms());
    if (ready > 0) return;
    if (ready == 0)
      throw Error(ErrorCode::kTimeout,
                  fmt::format("timed out while {} {}", action, peer_address(fd)));
    if (errno != EINTR) throw system_error("poll a socket");
  }
}

std::string remedy_for_listening(int error_number) {
  switch (error_number) {
    case EADDRINUSE:
      return "another program holds that port: end it (ss -ltnp shows it), choose another port, or "
             "0 for a free one";
    case EACCES:
      return "ports below 1024 (sysctl net.ipv4.ip_unprivileged_port_start) are root's: choose a "
             "higher one, or 0 for a free one";
    case EADDRNOTAVAIL:
      return "name an address of this machine";
    default:
      return "";
  }
}

Error listen_error(const std::string& host, std::uint16_t port, int error_number) {
  return system_error(fmt::format("listen on {}", HostPort{host, port}.to_string()), error_number,
                      remedy_for_listening(error_number));
}

// Names in other scripts and a link in an address (fe80::1%eth0) are allowed.
bool cannot_be_in_host(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte <= ' ' || byte == 0x7f || std::string_view("[]/,\"'\\").find(c) != std::string::npos;
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) result += static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '?' : c;
  return result;
}

}  // namespace

HostPort HostPort::parse(std::string_view text) {
  HostPort result;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos)
      throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' has '[' without ']'", text));
    result.host = std::string(text.substr(1, close - 1));
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':')
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' has text after ']' that is no port", text));
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else {
    const auto colon = text.rfind(':');
    has_port = colon != std::string_view::npos && text.find(':') == colon;
    result.host = std::string(has_port ? text.substr(0, colon) : text);
    if (has_port) port = text.substr(colon + 1);
  }
  if (result.host.empty())
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' names no host", text), "",
                "write host:port");
  if (const auto bad = std::find_if(result.host.begin(), result.host.end(), cannot_be_in_host);
      bad != result.host.end())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no host: no name or address has a {}", printable(result.host),
                            *bad == ' ' ? "space" : "'" + printable({&*bad, 1}) + "'"),
                "", "write host:port, or [address]:port");
  if (has_port) {
    const auto number = parse_integer(port);
    if (!number || *number < 0 || *number > 65535)
      throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is no port number", port),
                  fmt::format("it stands in '{}'", text), "use 0 to 65535");
    result.port = static_cast<std::uint16_t>(*number);
  }
  return result;
}

std::string HostPort::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  const std::string name = v6 ? "[" + host + "]" : host;
  return port ? fmt::format("{}:{}", name, *port) : name;
}

std::vector<std::string> resolve_addresses(const std::string& host) {
  std::string cause;
  const AddressList list = resolve(host, 0, 0, cause);
  if (!list)
    throw Error(ErrorCode::kConnection, fmt::format("the name '{}' does not resolve", host), cause,
                "check the name; getent hosts NAME shows what this machine knows of it");
  std::vector<std::string> result;
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    const std::string text = numeric_address(address->ai_addr, address->ai_addrlen);
    if (std::find(result.begin(), result.end(), text) == result.end()) result.push_back(text);
  }
  return result;
}

namespace {

struct InterfaceAddress {
  std::string name;
  int family;
  std::string address;
};

/// Of the interfaces that are up.
std::vector<InterfaceAddress> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw system_error("list this machine's network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::size_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    result.push_back(
        {entry->ifa_name, family, numeric_address(entry->ifa_addr, static_cast<socklen_t>(size))});
  }
  return result;
}

}  // namespace

std::vector<std::string> interface_addresses() {
  std::vector<std::string> result;
  for (InterfaceAddress& interface : interfaces()) result.push_back(std::move(interface.address));
  return result;
}

std::string address_of_interface(std::string_view names, std::string_view source) {
  const std::vector<InterfaceAddress> all = interfaces();
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    const std::string_view name = names.substr(at, end - at);
    at = end + 1;
    for (const int family : {AF_INET, AF_INET6})
      for (const InterfaceAddress& interface : all)
        if (interface.name == name && interface.family == family) return interface.address;
  }
  std::string there;
  for (const InterfaceAddress& interface : all)
    if (there.find(interface.name) == std::string::npos)
      there += (there.empty() ? "" : ", ") + interface.name;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: no such interface of {} is up and has an address", source, host_name()),
      fmt::format("these are: {}", there), "name one of them; ip address shows all");
}

UniqueFd listen_tcp(const std::string& host, std::uint16_t port) {
  UniqueFd fd = listen_tcp_unless_taken(host, port);
  if (!fd) throw listen_error(host, port, EADDRINUSE);
  return fd;
}

UniqueFd listen_tcp_unless_taken(const std::string& host, std::uint16_t port) {
  std::string cause;
  const AddressList list = resolve(host, port, AI_PASSIVE, cause);
  if (!list)
    throw Error(ErrorCode::kConnection, fmt::format("cannot listen on {}", host), cause,
                "name an address of this machine");
  int error_number = 0;
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(fd.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0)
      return fd;
    error_number = errno;
  }
  if (error_number == EADDRINUSE) return {};
  throw listen_error(host, port, error_number);
}

std::uint16_t local_port(int socket_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw system_error("read a socket's address");
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string local_address(int socket_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "?";
  return numeric_address(address, length);
}

std::string peer_address(int socket_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(socket_fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "?";
  return numeric_address(address, length);
}

std::string source_address_towards(const std::string& host) {
  std::string cause;
  // Any port would do: nothing is sent.
  const AddressList list = resolve(host, 9, AI_ADDRCONFIG, cause);
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    // connect(2) of a datagram socket asks the routing table and sends nothing.
    const UniqueFd fd(::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0)
      return local_address(fd.get());
    cause = strerrordesc_np(errno);
  }
  throw Error(ErrorCode::kConnection, fmt::format("there is no way from here to {}", host), cause,
              "check the host's name and this machine's network");
}

UniqueFd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  std::string cause = "no attempt was made";
  Backoff backoff(std::chrono::milliseconds(5), std::chrono::seconds(1));
  Deadline::Duration patience = kFirstPatience;
  while (true) {
    if (UniqueFd fd = try_host(host, port, patience, deadline, cause)) return fd;
    if (deadline.expired()) break;
    backoff.pause(deadline);
    patience = std::min(patience * 2, kLongestPatience);
  }
  throw unreachable(host, port, start, cause);
}

UniqueFd connect_tcp_once(const std::string& host, std::uint16_t port, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  std::string cause;
  if (UniqueFd fd = try_host(host, port, kLongestPatience, deadline, cause)) return fd;
  throw unreachable(host, port, start, cause);
}

void send_all(int fd, const void* data, std::size_t size, Deadline deadline) {
  const char* left = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::send(fd, left, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
      wait_ready(fd, POLLOUT, deadline, "sending to");
    } else if (n < 0 && errno != EINTR) {
      throw Error(ErrorCode::kConnection, fmt::format("cannot send to {}", peer_address(fd)),
                  strerrordesc_np(errno));
    } else if (n > 0) {
      left += n;
      size -= static_cast<std::size_t>(n);
    }
  }
}

void receive_all(int fd, void* data, std::size_t size, Deadline deadline) {
  char* left = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::recv(fd, left, size, MSG_DONTWAIT);
    if (n == 0)
      throw Error(ErrorCode::kConnection,
                  fmt::format("{} closed the connection", peer_address(fd)));
    if (n < 0 && errno == EAGAIN) {
      wait_ready(fd, POLLIN, deadline, "waiting for");
    } else if (n < 0 && errno != EINTR) {
      throw Error(ErrorCode::kConnection, fmt::format("cannot receive from {}", peer_address(fd)),
                  strerrordesc_np(errno));
    } else if (n > 0) {
      left += n;
      size -= static_cast<std::size_t>(n);
    }
  }
}

void set_nonblocking(int fd) {
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
    throw system_error("make a descriptor non-blocking");
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string whole_host_name() {
  const std::string name = host_name();
  std::string cause;
  const AddressList list = resolve(name, 0, AI_CANONNAME, cause);
  return list && list->ai_canonname != nullptr ? list->ai_canonname : name;
}

void notice_silence(int fd, Deadline::Duration idle, Deadline::Duration unacknowledged) {
  const auto set = [fd](int level, int option, std::int64_t value) {
    const int number = static_cast<int>(std::clamp<std::int64_t>(value, 1, INT32_MAX));
    ::setsockopt(fd, level, option, &number, sizeof number);
  };
  constexpr int kProbes = 4;
  const auto ms = [](Deadline::Duration time) {
    return std::chrono::ceil<std::chrono::milliseconds>(time).count();
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  // In seconds: half of the time until the first probe, the other half for all probes.
  set(IPPROTO_TCP, TCP_KEEPIDLE, ms(idle) / 2000);
  set(IPPROTO_TCP, TCP_KEEPINTVL, ms(idle) / 2000 / kProbes);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, ms(unacknowledged));
}

Deadline::Duration least_round_trip_of(int socket_fd) {
  // tcpi_min_rtt, which glibc's tcp_info ends before. The kernel's only ever grows.
  constexpr std::size_t kLeastAt = 148;
  std::array<char, 256> told{};
  socklen_t size = told.size();
  if (::getsockopt(socket_fd, IPPROTO_TCP, TCP_INFO, told.data(), &size) != 0) return {};
  const bool is_told = size >= kLeastAt + sizeof(std::uint32_t);
  std::uint32_t microseconds = 0;
  std::memcpy(&microseconds, told.data() + (is_told ? kLeastAt : offsetof(tcp_info, tcpi_rtt)),
              sizeof(microseconds));
  return std::chrono::microseconds(microseconds);
}

}  // namespace dtrun::base
