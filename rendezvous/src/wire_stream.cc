#include "wire_stream.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "dtrun/base/background_call.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::UniqueFd;

constexpr std::size_t kBlock = 64 << 10;

enum class Ready { fd, wake, timeout };

// @throws Error kAborted when interrupted
Ready wait_for(int fd, short events, const Interrupt& interrupt, Deadline deadline, int wake_fd) {
  while (true) {
    pollfd waits[] = {{fd, events, 0}, {interrupt.fd(), POLLIN, 0}, {wake_fd, POLLIN, 0}};
    const int ready = ::poll(waits, 3, deadline.poll_timeout_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) throw base::system_error("poll a socket");
    if (waits[1].revents != 0) throw Error(ErrorCode::kAborted, "the call was called off");
    if (waits[0].revents != 0) return Ready::fd;
    return ready == 0 ? Ready::timeout : Ready::wake;
  }
}

// A host that is gone sends no FIN: who waits for its word must notice all the same.
void prepare(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// An invalid fd and `cause` on refusal.
UniqueFd try_connect(const addrinfo& address, const Interrupt& interrupt, Deadline deadline,
                     std::string& cause) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error_number = 0;
  if (!fd ||
      (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS)) {
    error_number = errno;
  } else if (wait_for(fd.get(), POLLOUT, interrupt, deadline, -1) == Ready::timeout) {
    error_number = ETIMEDOUT;
  } else {
    socklen_t length = sizeof error_number;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &length);
  }
  if (error_number == 0) return fd;
  cause = strerrordesc_np(error_number);
  return {};
}

struct Resolved {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list{nullptr, [](addrinfo* first) {
                                                        if (first != nullptr) ::freeaddrinfo(first);
                                                      }};
  int status = 0;
};

Resolved resolve(const base::HostPort& server, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(server.port.value_or(0));
  Resolved result;
  result.status = ::getaddrinfo(server.host.c_str(), port.c_str(), &hints, &list);
  if (result.status == 0) result.list.reset(list);
  return result;
}

// The resolver can take long and cannot be called off: it works on a thread of its own.
Resolved resolve_in_time(const base::HostPort& server, const Interrupt& interrupt,
                         Deadline deadline) {
  if (Resolved numeric = resolve(server, AI_NUMERICHOST); numeric.status == 0) return numeric;
  base::EventLoop loop;
  std::optional<Resolved> result;
  const base::BackgroundCall call(loop, [server, &result] {
    const auto resolved = std::make_shared<Resolved>(resolve(server, AI_ADDRCONFIG));
    return [resolved, &result] { result = std::move(*resolved); };
  });
  base::FdWatch interrupted(loop, interrupt.fd());
  interrupted.on_readable([] {});
  while (!result) {
    if (interrupt.raised()) throw Error(ErrorCode::kAborted, "the call was called off");
    if (deadline.expired())
      throw Error(ErrorCode::kTimeout, fmt::format("cannot reach {}", server.to_string()),
                  "the resolver does not answer");
    loop.run_some(deadline);
  }
  return std::move(*result);
}

UniqueFd connect(const base::HostPort& server, const Interrupt& interrupt, Deadline deadline) {
  const Resolved resolved = resolve_in_time(server, interrupt, deadline);
  std::string cause = fmt::format("the name does not resolve: {}", ::gai_strerror(resolved.status));
  for (const addrinfo* address = resolved.list.get(); address != nullptr;
       address = address->ai_next)
    if (UniqueFd fd = try_connect(*address, interrupt, deadline, cause)) return fd;
  throw Error(ErrorCode::kConnection, fmt::format("cannot reach {}", server.to_string()), cause);
}

}  // namespace

WireStream::WireStream(const base::HostPort& server, const EtcdOptions& options,
                       const Interrupt& interrupt, Deadline deadline)
    : server_(server.to_string()),
      interrupt_(interrupt),
      fd_(connect(server, interrupt, deadline)) {
  prepare(fd_.get());
  if (options.protocol == EtcdOptions::Protocol::http) return;
  tls_ = std::make_unique<TlsSession>(options, server.host);
  shake_hands(deadline);
}

void WireStream::shake_hands(Deadline deadline) {
  while (true) {
    const bool done = tls_->handshake();
    send_raw(tls_->take_output(), deadline);
    if (done) return;
    std::string bytes;
    if (receive_raw(bytes, deadline, -1) == Came::end)
      throw Error(ErrorCode::kConnection, fmt::format("{} refuses TLS", server_),
                  "it closed the connection in the handshake");
    tls_->feed(bytes);
  }
}

void WireStream::send_all(std::string_view bytes, Deadline deadline) {
  if (!tls_) return send_raw(bytes, deadline);
  tls_->write(bytes);
  send_raw(tls_->take_output(), deadline);
}

WireStream::Came WireStream::receive_some(std::string& into, Deadline deadline, int wake_fd) {
  if (!tls_) return receive_raw(into, deadline, wake_fd);
  while (true) {
    char plain[16 << 10];
    if (const std::size_t n = tls_->read(plain, sizeof plain); n > 0) {
      into.append(plain, n);
      return Came::bytes;
    }
    if (tls_->ended()) return Came::end;
    send_raw(tls_->take_output(), deadline);
    std::string bytes;
    const Came came = receive_raw(bytes, deadline, wake_fd);
    if (came != Came::bytes) return came;
    tls_->feed(bytes);
  }
}

void WireStream::send_raw(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      if (wait_for(fd_.get(), POLLOUT, interrupt_, deadline, -1) == Ready::timeout)
        throw Error(ErrorCode::kTimeout, fmt::format("{} takes no requests", server_),
                    "it may be stopped or overloaded");
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kConnection, fmt::format("lost {}", server_), strerrordesc_np(errno));
    }
  }
}

WireStream::Came WireStream::receive_raw(std::string& into, Deadline deadline, int wake_fd) {
  while (true) {
    const Ready ready = wait_for(fd_.get(), POLLIN, interrupt_, deadline, wake_fd);
    if (ready == Ready::wake) return Came::nothing;
    if (ready == Ready::timeout)
      throw Error(ErrorCode::kTimeout, fmt::format("{} does not answer", server_),
                  "it may be stopped or overloaded");
    const std::size_t had = into.size();
    into.resize(had + kBlock);
    const ssize_t n = ::recv(fd_.get(), into.data() + had, kBlock, MSG_DONTWAIT);
    const int error_number = errno;
    into.resize(had + (n > 0 ? static_cast<std::size_t>(n) : 0));
    if (n > 0) return Came::bytes;
    if (n == 0) return Came::end;
    if (error_number != EAGAIN && error_number != EINTR)
      throw Error(ErrorCode::kConnection, fmt::format("lost {}", server_),
                  strerrordesc_np(error_number));
  }
}

}  // namespace dtrun::rendezvous
