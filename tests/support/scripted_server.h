// ScriptedServer: a server on the loopback that does with every connection what the test says, one
// after another, on a thread of its own; and what such a script is made of. For servers that are
// broken on purpose.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "dtrun/base/socket.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::testing_support {

class ScriptedServer {
 public:
  /// @param script is given the number of the connection, from 0 on, and the connection
  explicit ScriptedServer(std::function<void(int number, int fd)> script)
      : listener_(base::listen_tcp("127.0.0.1", 0)), stop_(base::make_pipe()) {
    thread_ = std::thread([this, script = std::move(script)] {
      for (int number = 0;; ++number) {
        pollfd waits[] = {{listener_.get(), POLLIN, 0}, {stop_.read_end.get(), POLLIN, 0}};
        ::poll(waits, 2, -1);
        if (waits[1].revents != 0) return;
        const base::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (fd) script(number, fd.get());
      }
    });
  }
  ~ScriptedServer() {
    stop_.write_end.reset();
    thread_.join();
  }
  base::HostPort endpoint() const { return {"127.0.0.1", base::local_port(listener_.get())}; }

  /// One request with its body; empty when the peer has closed.
  static std::string read_request(int fd) { return read_message(fd); }
  static std::string read_message(int fd) {
    std::string text;
    std::size_t whole = std::string::npos;
    while (text.size() < whole) {
      char block[4096];
      const ssize_t n = ::recv(fd, block, sizeof block, 0);
      if (n <= 0) return "";
      text.append(block, static_cast<std::size_t>(n));
      const auto head = text.find("\r\n\r\n");
      if (head == std::string::npos || whole != std::string::npos) continue;
      const std::string field = "Content-Length: ";
      const auto length = text.find(field);
      whole = head + 4;
      if (length < head) whole += std::stoul(text.substr(length + field.size()));
    }
    return text;
  }
  static void write(int fd, const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;
      at += static_cast<std::size_t>(n);
    }
  }
  static std::string reply(const std::string& body, const std::string& status = "200 OK") {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  }
  static void wait_for_close(int fd) {
    char block[4096];
    while (::recv(fd, block, sizeof block, 0) > 0) continue;
  }

 private:
  base::UniqueFd listener_;
  base::Pipe stop_;
  std::thread thread_;
};

}  // namespace dtrun::testing_support
