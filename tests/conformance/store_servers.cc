// store_servers: as many stores as it is asked for, for tests written in other languages. Reads
// "open" and answers with the port of a new store on the loopback; reads "close PORT" and answers
// "closed" once that store and its connections are gone. Ends with its standard input.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store_server.h"

namespace dtrun::conformance {
namespace {

class StoreServers {
 public:
  StoreServers() : input_(loop_, STDIN_FILENO) {
    input_.on_readable([this] { read(); });
  }
  void run() { loop_.run(); }

 private:
  void read() {
    char bytes[512];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n <= 0) return loop_.stop();
    pending_.append(bytes, static_cast<std::size_t>(n));
    for (std::size_t end; (end = pending_.find('\n')) != std::string::npos;) {
      obey(pending_.substr(0, end));
      pending_.erase(0, end + 1);
    }
  }

  void obey(const std::string& line) {
    if (line.starts_with("close ")) {
      servers_.erase(static_cast<std::uint16_t>(std::stoi(line.substr(6))));
      std::puts("closed");
    } else {
      auto server =
          std::make_unique<rendezvous::TcpStoreServer>(loop_, base::listen_tcp("127.0.0.1", 0));
      const std::uint16_t port = server->port();
      servers_[port] = std::move(server);
      std::printf("%u\n", port);
    }
    std::fflush(stdout);
  }

  base::EventLoop loop_;
  std::map<std::uint16_t, std::unique_ptr<rendezvous::TcpStoreServer>> servers_;
  base::FdWatch input_;
  std::string pending_;
};

}  // namespace
}  // namespace dtrun::conformance

int main() {
  try {
    dtrun::conformance::StoreServers().run();
    return 0;
  } catch (const dtrun::base::Error& error) {
    std::fprintf(stderr, "store_servers: %s\n", error.what());
    return 1;
  }
}
