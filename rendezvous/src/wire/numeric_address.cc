#include "wire/numeric_address.h"

#include <fmt/core.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

namespace dtrun::rendezvous {
namespace {

struct AddressDelete {
  void operator()(addrinfo* address) const { ::freeaddrinfo(address); }
};

std::unique_ptr<addrinfo, AddressDelete> socket_address(const std::string& numeric,
                                                        std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* address = nullptr;
  ::getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &address);
  return std::unique_ptr<addrinfo, AddressDelete>(address);
}

}  // namespace

bool is_numeric(const std::string& host) {
  return socket_address(host, 0) != nullptr;
}

base::UniqueFd start_connecting(const std::string& numeric, std::uint16_t port, std::string& why) {
  const auto address = socket_address(numeric, port);
  if (!address) {
    why = fmt::format("{} is no address", numeric);
    return {};
  }
  base::UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd &&
      (::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS))
    return fd;
  why = strerrordesc_np(errno);
  return {};
}

}  // namespace dtrun::rendezvous
