#include "store/store_connection.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dtrun/base/backoff.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "proof/agent_handshake.h"
#include "proof/token_gate.h"
#include "wire/printable.h"

namespace dtrun::rendezvous {
namespace {

using base::Backoff;
using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::HostPort;

// For a store that closes on one more connection.
constexpr Deadline::Duration kReconnectBudget = std::chrono::seconds(5);

// PyTorch's servers of 2.2 to 2.4 know no PING and close on it.
StoreOp other_probe(StoreOp probe) {
  return probe == StoreOp::kPing ? StoreOp::kCheck : StoreOp::kPing;
}

Error unreachable(const TcpStoreOptions& options, Deadline::Clock::time_point start,
                  std::string cause, std::string remedy) {
  return Error(ErrorCode::kConnection,
               fmt::format("cannot reach the store at {} for {}",
                           HostPort{options.host, options.port}.to_string(),
                           base::format_duration(Deadline::Clock::now() - start)),
               std::move(cause), std::move(remedy));
}

Backoff make_backoff() {
  return Backoff(std::chrono::milliseconds(10), std::chrono::seconds(1));
}

}  // namespace

StoreConnection::StoreConnection(base::UniqueFd fd, const TcpStoreOptions& options)
    : fd_(std::move(fd)),
      store_(HostPort{options.host, options.port}.to_string()),
      lost_after_(options.lost_after),
      replies_([this](char* data, std::size_t size,
                      Deadline deadline) { return receive(data, size, deadline); },
               store_) {}

std::unique_ptr<StoreConnection> StoreConnection::open(const TcpStoreOptions& options,
                                                       Deadline deadline) {
  const auto start = Deadline::Clock::now();
  Backoff backoff = make_backoff();
  StoreOp probe = StoreOp::kPing;
  std::string cause;
  std::string remedy;
  do {
    try {
      return attempt(options, base::connect_tcp(options.host, options.port, deadline), probe,
                     deadline);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kProtocol) throw;
      cause = error.code() == ErrorCode::kTimeout ? "it accepts connections, but does not answer"
                                                  : error.why();
      remedy = error.remedy();
    }
    probe = other_probe(probe);
    backoff.pause(deadline);
  } while (!deadline.expired());
  throw unreachable(options, start, cause, remedy);
}

std::unique_ptr<StoreConnection> StoreConnection::open_another(const TcpStoreOptions& options,
                                                               Deadline deadline) {
  const auto start = Deadline::Clock::now();
  const Deadline last_try = Deadline::after(std::min(kReconnectBudget, options.connect_timeout));
  Backoff backoff = make_backoff();
  for (StoreOp probe = StoreOp::kPing;; probe = other_probe(probe)) {
    // A host that is up takes a connection even for a process that is stopped.
    const Deadline connected = Deadline::after(options.lost_after).earlier(deadline);
    base::UniqueFd fd;
    try {
      fd = base::connect_tcp_once(options.host, options.port, connected);
    } catch (const Error& error) {
      if (!deadline.expired()) throw unreachable(options, start, error.why(), error.remedy());
      throw Unanswered(ErrorCode::kTimeout, "no other connection to the store", error.why());
    }
    try {
      return attempt(options, std::move(fd), probe, deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kConnection) throw;
      if (last_try.earlier(deadline).expired())
        throw unreachable(options, start, error.why(), error.remedy());
    }
    backoff.pause(last_try.earlier(deadline));
  }
}

std::unique_ptr<StoreConnection> StoreConnection::attempt(const TcpStoreOptions& options,
                                                          base::UniqueFd fd, StoreOp probe,
                                                          Deadline deadline) {
  base::notice_silence(fd.get(), options.lost_after, options.lost_after);
  std::unique_ptr<StoreConnection> connection(new StoreConnection(std::move(fd), options));
  try {
    if (options.token) connection->prove_token(*options.token, deadline);
    connection->prove(probe, deadline);
  } catch (const StoreLost& error) {
    throw Error(ErrorCode::kConnection, error.summary(), error.why(),
                options.token ? "is it a store that was started with this token?"
                              : "is it a store? One that was started with a token closes on "
                                "clients without it");
  }
  return connection;
}

// The store speaks only when asked, so that nothing can come behind the handshake.
void StoreConnection::prove_token(const Token& token, Deadline deadline) {
  AgentHandshake handshake(AgentHandshake::Role::kMember, kStorePurpose, token, fresh_nonce());
  while (true) {
    if (const std::string output = handshake.take_output(); !output.empty()) send(output, deadline);
    if (handshake.state() == AgentHandshake::State::kDone) return;
    if (handshake.state() != AgentHandshake::State::kRunning)
      throw Error(ErrorCode::kProtocol,
                  fmt::format("the store at {} {}", store_,
                              handshake.state() == AgentHandshake::State::kRefused
                                  ? "does not take this client's token"
                                  : "proves nothing"),
                  handshake.failure(),
                  "give the store (dtrun-store --token-file) and its clients the same token");
    char bytes[AgentHandshake::kMostBytes];
    std::string_view come(bytes, receive(bytes, sizeof bytes, deadline));
    handshake.receive(come);
  }
}

void StoreConnection::prove(StoreOp probe, Deadline deadline) {
  std::string request(kStorePreamble);
  append_number(request, probe);
  const std::uint32_t nonce = static_cast<std::uint32_t>(::getpid());
  if (probe == StoreOp::kPing) {
    append_number(request, nonce);
  } else {
    append_number<std::uint64_t>(request, 0);  // CHECK of no keys
  }
  send(request, deadline);
  const auto no_store = [this](const std::string& why) {
    return Error(ErrorCode::kProtocol, fmt::format("what listens at {} is no store", store_), why,
                 "check the address and the port (MASTER_ADDR, MASTER_PORT)");
  };
  if (probe != StoreOp::kPing) {
    std::uint8_t answer = kNotReady;
    try {
      answer = read_flag(deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kProtocol) throw;
    }
    if (answer != kReady) throw no_store("it answered the handshake with other bytes");
    return;
  }
  const std::uint32_t answer = replies_.read_u32(deadline);
  if (answer == nonce) return;
  std::string text(sizeof answer, '\0');
  std::memcpy(text.data(), &answer, sizeof answer);
  throw no_store(fmt::format("it answered the handshake with '{}'", printable(text)));
}

bool StoreConnection::has_ended() const {
  pollfd state{fd_.get(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

StoreLost StoreConnection::lost(int error_number) const {
  std::string why = error_number == 0 ? "it closed the connection" : strerrordesc_np(error_number);
  // Where the host does not even say its hardware address, there is "no route" to it.
  if (error_number == ETIMEDOUT || error_number == EHOSTUNREACH)
    why = fmt::format("its host has not answered for {}: it is down, or the network is cut",
                      base::format_duration(lost_after_));
  return StoreLost(
      ErrorCode::kConnection, fmt::format("lost the store at {}", store_), std::move(why),
      "the process that held it (the launcher, or rank 0) has probably ended: see its log");
}

// The kernel goes back to packets of their own when this one has not been of use for 40 ms: it is
// asked for each time.
void StoreConnection::expect_a_long_wait() {
  const int off = 0;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

void StoreConnection::send(const std::string& request, Deadline deadline) {
  const char* left = request.data();
  std::size_t size = request.size();
  while (size > 0) {
    const ssize_t n = ::send(fd_.get(), left, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      left += n;
      size -= static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      pollfd wait{fd_.get(), POLLOUT, 0};
      if (::poll(&wait, 1, deadline.poll_timeout_ms()) == 0)
        throw Unanswered(ErrorCode::kTimeout,
                         fmt::format("the store at {} takes no requests", store_),
                         "its process may be stopped or overloaded");
    } else if (errno != EINTR) {
      throw lost(errno);
    }
  }
}

std::size_t StoreConnection::receive(char* data, std::size_t size, Deadline deadline) {
  while (true) {
    pollfd wait{fd_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, deadline.poll_timeout_ms());
    if (ready == 0)
      throw Unanswered(ErrorCode::kTimeout, fmt::format("the store at {} does not answer", store_),
                       "its process may be stopped or overloaded, or its host be cut off");
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = ::recv(fd_.get(), data, size, MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) throw lost(0);
    if (errno != EAGAIN && errno != EINTR) throw lost(errno);
  }
}

}  // namespace dtrun::rendezvous
