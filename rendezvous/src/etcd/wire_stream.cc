#include "etcd/wire_stream.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "dtrun/base/background_call.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "wire/numeric_address.h"

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

// A host that is gone sends no FIN, and a client that waits for it must notice all the same.
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

// One attempt; an invalid fd and `cause` on refusal.
UniqueFd try_connect(const std::string& numeric, std::uint16_t port, const Interrupt& interrupt,
                     Deadline deadline, std::string& cause) {
  UniqueFd fd = start_connecting(numeric, port, cause);
  if (!fd) return {};
  int error_number = ETIMEDOUT;
  if (wait_for(fd.get(), POLLOUT, interrupt, deadline, -1) != Ready::timeout) {
    socklen_t length = sizeof error_number;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &length);
  }
  if (error_number == 0) return fd;
  cause = strerrordesc_np(error_number);
  return {};
}

struct Resolved {
  std::vector<std::string> addresses;
  std::string why;  ///< where there are none
};

// The resolver can take long and cannot be called off: it works on a thread of its own.
Resolved resolve(const std::string& host, const Interrupt& interrupt, Deadline deadline) {
  if (is_numeric(host)) return {{host}, ""};
  base::EventLoop loop;
  std::optional<Resolved> result;
  const base::BackgroundCall call(loop, [host, &result] {
    Resolved found;
    try {
      found.addresses = base::resolve_addresses(host);
    } catch (const Error& error) {
      found.why = fmt::format("{}: {}", error.summary(), error.why());
    }
    return base::BackgroundCall::Outcome([found, &result] { result = found; });
  });
  base::FdWatch interrupted(loop, interrupt.fd());
  interrupted.on_readable([] {});
  while (!result) {
    if (interrupt.raised()) throw Error(ErrorCode::kAborted, "the call was called off");
    if (deadline.expired()) return {{}, "the resolver does not answer"};
    loop.run_some(deadline);
  }
  return *result;
}

// Each address has its share of the time: one that is silent leaves some for the others.
UniqueFd connect(const base::HostPort& server, const Interrupt& interrupt, Deadline deadline) {
  Resolved resolved = resolve(server.host, interrupt, deadline);
  std::string why = std::move(resolved.why);
  auto left = static_cast<Deadline::Duration::rep>(resolved.addresses.size());
  for (const std::string& address : resolved.addresses) {
    const Deadline turn =
        deadline.is_never() ? deadline : Deadline::after(deadline.remaining() / left--);
    std::string cause;
    UniqueFd fd = try_connect(address, server.port.value_or(0), interrupt, turn, cause);
    if (fd) return fd;
    if (resolved.addresses.size() > 1) cause = fmt::format("{}: {}", address, cause);
    why += why.empty() ? cause : ", " + cause;
  }
  throw Error(ErrorCode::kConnection, fmt::format("cannot reach {}", server.to_string()), why);
}

}  // namespace

WireStream::WireStream(const base::HostPort& server, const EtcdOptions& options,
                       const Interrupt& interrupt, Deadline deadline)
    : server_(server.to_string()),
      interrupt_(interrupt),
      fd_(connect(server, interrupt, deadline)) {
  prepare(fd_.get());
  if (options.protocol == EtcdOptions::Protocol::http) return;
  tls_ = TlsSession::open(options, server.host);
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
    // Whoever cuts the connection must not make a part of a reply look like the whole.
    if (came == Came::end)
      throw Error(ErrorCode::kConnection, fmt::format("lost {}", server_),
                  "the connection was closed without close_notify, TLS's own end");
    if (came == Came::nothing) return came;
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
