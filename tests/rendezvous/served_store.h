// A TcpStoreServer on a thread of its own, and a raw socket to talk to one byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cctype>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store.h"
#include "dtrun/rendezvous/tcp_store_server.h"

namespace dtrun::rendezvous {

class ServedStore {
 public:
  explicit ServedStore(TcpStoreServerOptions options = {}, const std::string& host = "127.0.0.1",
                       std::uint16_t port = 0)
      : server_(std::in_place, loop_, base::listen_tcp(host, port), std::move(options)),
        port_(server_->port()),
        thread_([this] { loop_.run(); }) {}
  ~ServedStore() { stop(); }

  std::uint16_t port() const { return port_; }
  std::shared_ptr<Store> client() const {
    return connect_tcp_store({"127.0.0.1", port_, std::chrono::seconds(30)});
  }
  /// Ends the server with all its connections.
  void stop() {
    // Posted: a stop() that came before the thread's run() would be forgotten.
    loop_.post([this] { loop_.stop(); });
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }
  base::EventLoop& loop() { return loop_; }
  void start_over() {
    std::promise<void> done;
    loop_.post([&] {
      server_->start_over();
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  base::EventLoop loop_;
  std::optional<TcpStoreServer> server_;
  std::uint16_t port_;
  std::thread thread_;
};

/// "01 | 02 0*7 2f 6b": bytes in hexadecimal; 0*7 is seven zero bytes, ff*7 likewise, other text in
/// quotes stands for itself.
inline std::string bytes(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '|') {
      ++i;
    } else if (text[i] == '\'') {
      const std::size_t end = text.find('\'', i + 1);
      result += text.substr(i + 1, end - i - 1);
      i = end + 1;
    } else {
      std::size_t end = text.find_first_of(" |", i);
      if (end == std::string::npos) end = text.size();
      const std::string word = text.substr(i, end - i);
      const std::size_t star = word.find('*');
      const char byte = static_cast<char>(std::stoi(word.substr(0, star), nullptr, 16));
      result.append(star == std::string::npos ? 1 : std::stoul(word.substr(star + 1)), byte);
      i = end;
    }
  }
  return result;
}

inline std::string hex(const std::string& raw) {
  std::string result;
  for (const char c : raw) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x ", static_cast<unsigned char>(c));
    result += digits;
  }
  return result;
}

class RawClient {
 public:
  explicit RawClient(std::uint16_t port)
      : RawClient(base::connect_tcp("127.0.0.1", port, limit())) {}
  explicit RawClient(base::UniqueFd fd) : fd_(std::move(fd)) {}

  static base::Deadline limit() { return base::Deadline::after(std::chrono::seconds(30)); }

  void send(const std::string& raw) { base::send_all(fd_.get(), raw.data(), raw.size(), limit()); }
  /// Ends the connection by a reset.
  void reset() {
    const linger at_once{1, 0};
    ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }
  std::string receive(std::size_t size) {
    std::string result(size, '\0');
    base::receive_all(fd_.get(), result.data(), size, limit());
    return result;
  }
  /// Sends and compares what comes back, to the last byte: a PING after it must be answered next.
  void exchange(const std::string& request, const std::string& reply) {
    send(bytes(request));
    const std::string expected = bytes(reply);
    EXPECT_EQ(hex(receive(expected.size())), hex(expected)) << request;
  }
  void handshake() { exchange("00 ce f7 85 3c | 0d 'pid1'", "'pid1'"); }
  /// Nothing more has come than was read.
  void expect_in_step() { exchange("0d 'step'", "'step'"); }
  bool closed_by_peer() {
    char byte;
    try {
      base::receive_all(fd_.get(), &byte, 1, limit());
    } catch (const base::Error& error) {
      return error.code() == base::ErrorCode::kConnection;
    }
    return false;
  }
  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  base::UniqueFd fd_;
};

}  // namespace dtrun::rendezvous
