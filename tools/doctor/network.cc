#include <arpa/inet.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "doctor/examinations.h"
#include "doctor/text_files.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::doctor {
namespace {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* const bytes =
      address->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  ::inet_ntop(address->sa_family, bytes, text, sizeof(text));
  return text;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// Each once, in the resolver's order.
std::vector<std::string> addresses_of(const std::string& name, std::string& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (code != 0) {
    error = ::gai_strerror(code);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::vector<std::string> addresses;
  std::set<std::string> known;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    const std::string text = text_of(one->ai_addr);
    if (known.insert(text).second) addresses.push_back(text);
  }
  return addresses;
}

Finding host_name() {
  const std::string name = base::host_name();
  std::string error;
  const std::vector<std::string> addresses = addresses_of(name, error);
  Finding finding{"host name", Verdict::good,
                  fmt::format("{}: {}", name, fmt::join(addresses, ", "))};
  bool reaches_others = false;
  for (const std::string& address : addresses) reaches_others |= !is_loopback(address);
  if (reaches_others) return finding;
  finding.verdict = Verdict::warning;
  finding.meaning =
      "jobs of several nodes cannot meet at it; those of this machine alone do not need it";
  finding.remedy =
      "a line of /etc/hosts with an address that others reach, or give them --master_addr=ADDRESS";
  if (addresses.empty()) finding.found = fmt::format("{} has no address: {}", name, error);
  return finding;
}

Finding interfaces() {
  Finding finding{"interfaces", Verdict::good, ""};
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) {
    finding.found = fmt::format("unknown: {}", std::strerror(errno));
    return finding;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  std::vector<std::string> others;
  bool has_loopback = false;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string address = text_of(one->ifa_addr);
    has_loopback |= address.starts_with("127.");
    // Link-local addresses of IPv6 need the name of an interface, which another host does not know.
    if (!is_loopback(address) && !address.starts_with("fe80"))
      others.push_back(fmt::format("{} {}", one->ifa_name, address));
  }
  finding.found = fmt::format("{}", fmt::join(others, ", "));
  if (!has_loopback) {
    finding.verdict = Verdict::bad;
    finding.found = others.empty() ? "none is up" : finding.found + ", but no loopback";
    finding.meaning = "the ranks of one machine meet at 127.0.0.1";
    finding.remedy = "ip link set lo up";
  } else if (others.empty()) {
    finding.found = "loopback only";
    finding.meaning = "jobs of this machine alone";
  }
  return finding;
}

Finding meeting_port(int port) {
  Finding finding{fmt::format("port {}", port), Verdict::good, "free"};
  const base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // As dtrun's own listening sockets: connections of an earlier job that have not faded yet do not
  // count.
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return finding;
  const int error = errno;
  finding.verdict = Verdict::warning;
  finding.found = std::strerror(error);
  finding.meaning =
      "jobs of several nodes meet at it unless told otherwise; those of one machine choose a free "
      "one";
  finding.remedy =
      error == EADDRINUSE
          ? fmt::format("ss -ltnp 'sport = :{}' shows who has it; --master_port=PORT takes another",
                        port)
          : "--master_port=PORT takes another";
  return finding;
}

Finding own_ports() {
  const std::string line =
      first_line("/proc/sys/net/ipv4/ip_local_port_range").value_or("32768 60999");
  char* end = nullptr;
  const long first = std::strtol(line.c_str(), &end, 10), last = std::strtol(end, nullptr, 10);
  Finding finding{"ports of connections", Verdict::good, fmt::format("{} to {}", first, last)};
  if (last - first >= 10'000) return finding;
  finding.verdict = Verdict::warning;
  finding.meaning =
      "each rank has a connection, or up to 16, to each rank of the other nodes for each lane and "
      "group";
  finding.remedy = "sysctl -w net.ipv4.ip_local_port_range='32768 60999'";
  return finding;
}

Finding listen_queue() {
  const std::string line = first_line("/proc/sys/net/core/somaxconn").value_or("");
  Finding finding{"listen queue", Verdict::good, line.empty() ? "unknown" : line};
  if (line.empty() || std::atoi(line.c_str()) >= 1024) return finding;
  finding.verdict = Verdict::warning;
  finding.meaning =
      "where more ranks than that connect at once, some wait seconds for a second try";
  finding.remedy = "sysctl -w net.core.somaxconn=4096";
  return finding;
}

}  // namespace

Findings examine_network(int port) {
  return {host_name(), interfaces(), meeting_port(port), own_ports(), listen_queue()};
}

}  // namespace dtrun::doctor
