#include "store_connection.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::HostPort;

// A host that is gone sends no FIN: a client that waits for ever must notice all the same.
void keep_alive(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

Error lost(const std::string& store, std::string why) {
  return Error(
      ErrorCode::kConnection, fmt::format("lost the store at {}", store), std::move(why),
      "the process that held it (the launcher, or rank 0) has probably ended: see its log");
}

// Before the next attempt; jittered, so that a whole job does not knock in step.
class Backoff {
 public:
  void pause(Deadline deadline) {
    const auto jittered = pause_ / 2 + std::chrono::milliseconds(random_() % (pause_.count() + 1));
    const Deadline end = Deadline::after(jittered).earlier(deadline);
    ::poll(nullptr, 0, end.poll_timeout_ms());
    pause_ = std::min(pause_ * 2, std::chrono::milliseconds(1000));
  }

 private:
  std::chrono::milliseconds pause_{10};
  std::minstd_rand random_{
      static_cast<unsigned>(::getpid()) ^
      static_cast<unsigned>(Deadline::Clock::now().time_since_epoch().count())};
};

}  // namespace

std::unique_ptr<StoreConnection> StoreConnection::open(const std::string& host, std::uint16_t port,
                                                       Deadline deadline) {
  const auto start = Deadline::Clock::now();
  Backoff backoff;
  StoreOp probe = StoreOp::kPing;
  std::string cause;
  std::string remedy;
  do {
    try {
      return attempt(host, port, probe, deadline);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kProtocol) throw;
      cause = error.code() == ErrorCode::kTimeout ? "it accepts connections, but does not answer"
                                                  : error.why();
      remedy = error.remedy();
    }
    // PyTorch's servers of 2.2 to 2.4 know no PING and close on it.
    probe = probe == StoreOp::kPing ? StoreOp::kCheck : StoreOp::kPing;
    backoff.pause(deadline);
  } while (!deadline.expired());
  throw Error(ErrorCode::kConnection,
              fmt::format("cannot reach the store at {} for {}", HostPort{host, port}.to_string(),
                          base::format_duration(Deadline::Clock::now() - start)),
              cause, remedy);
}

std::unique_ptr<StoreConnection> StoreConnection::attempt(const std::string& host,
                                                          std::uint16_t port, StoreOp probe,
                                                          Deadline deadline) {
  base::UniqueFd fd = base::connect_tcp(host, port, deadline);
  keep_alive(fd.get());
  std::unique_ptr<StoreConnection> connection(
      new StoreConnection(std::move(fd), HostPort{host, port}.to_string()));
  connection->prove(probe, deadline);
  return connection;
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
  std::uint32_t answer = nonce;
  if (probe == StoreOp::kPing) {
    read(&answer, sizeof answer, deadline);
  } else if (read_u8(deadline) != kReady) {
    answer = ~nonce;
  }
  if (answer != nonce)
    throw Error(ErrorCode::kProtocol, fmt::format("what listens at {} is no store", store_),
                "it answered the handshake with other bytes",
                "check the address and the port (MASTER_ADDR, MASTER_PORT)");
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
      throw lost(store_, strerrordesc_np(errno));
    }
  }
}

std::size_t StoreConnection::receive(void* data, std::size_t size, Deadline deadline) {
  while (true) {
    pollfd wait{fd_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, deadline.poll_timeout_ms());
    if (ready == 0)
      throw Unanswered(ErrorCode::kTimeout, fmt::format("the store at {} does not answer", store_),
                       "its process may be stopped or overloaded");
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = ::recv(fd_.get(), data, size, MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) throw lost(store_, "it closed the connection");
    if (errno != EAGAIN && errno != EINTR) throw lost(store_, strerrordesc_np(errno));
  }
}

void StoreConnection::read(void* data, std::size_t size, Deadline deadline) {
  char* left = static_cast<char*>(data);
  while (size > 0) {
    if (begin_ == end_) {
      begin_ = end_ = 0;
      end_ = receive(buffer_, sizeof buffer_, deadline);
    }
    const std::size_t taken = std::min(size, end_ - begin_);
    std::memcpy(left, buffer_ + begin_, taken);
    begin_ += taken;
    left += taken;
    size -= taken;
  }
  has_unseen_writes_ = false;
}

std::uint8_t StoreConnection::read_u8(Deadline deadline) {
  std::uint8_t value = 0;
  read(&value, sizeof value, deadline);
  return value;
}

std::int64_t StoreConnection::read_i64(Deadline deadline) {
  std::int64_t value = 0;
  read(&value, sizeof value, deadline);
  return value;
}

std::string StoreConnection::read_text(Deadline deadline) {
  std::uint64_t left = 0;
  read(&left, sizeof left, deadline);
  if (left > kMaxReplyBytes)
    throw Error(ErrorCode::kProtocol,
                fmt::format("the store at {} announces a value of {} bytes", store_, left),
                "no store sends that; another program may listen there",
                "check the address and the port (MASTER_ADDR, MASTER_PORT)");
  // Grows with what comes, not with what was announced.
  constexpr std::uint64_t kStep = 4 << 20;
  std::string text;
  while (left > 0) {
    const std::size_t step = std::min(left, kStep);
    const std::size_t have = text.size();
    text.resize(have + step);
    read(text.data() + have, step, deadline);
    left -= step;
  }
  return text;
}

}  // namespace dtrun::rendezvous
