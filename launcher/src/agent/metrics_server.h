// MetricsServer: answers `GET /metrics` over HTTP (--metrics-port), on the agent's EventLoop. One
// request a connection. A client that is slow, silent or talks nonsense holds up nobody: requests
// and connections are bounded in size, number and time. Own code, because a scrape is one line of
// text: Boost.Beast, which would do it, takes 4 s of a build and 250 KB of the binary.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/spare_fd.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

struct LaunchPlan;

/// The whole response to what a client has sent, up to the empty line that ends its headers.
/// @param metrics called where they are asked for
std::string http_response(std::string_view request, const std::function<std::string()>& metrics);

class MetricsServer {
 public:
  /// Of a request, with its headers.
  static constexpr std::size_t kMostRequestBytes = 8 << 10;
  /// Beyond it the oldest connection is closed.
  static constexpr std::size_t kMostConnections = 16;
  /// Of a connection.
  static constexpr base::Deadline::Duration kPatience = std::chrono::seconds(5);

  /// @param listener bound and listening; closed: there is no server
  /// @param metrics the text of the moment
  MetricsServer(base::EventLoop& loop, base::UniqueFd listener,
                std::function<std::string()> metrics);

 private:
  struct Connection {
    Connection(base::EventLoop& loop, base::UniqueFd socket)
        : fd(std::move(socket)), watch(loop, fd.get()), patience(loop) {}

    base::UniqueFd fd;
    base::FdWatch watch;
    base::Timer patience;
    std::string request = {};
    std::string response = {};  ///< what has not been sent; empty, once it has begun: all is
    bool answers = false;       ///< the request has come
    bool is_over = false;
  };

  void accept_one();
  void admit(base::UniqueFd socket);
  void look_again_later();
  void read(Connection& connection);
  void answer(Connection& connection);
  void write(Connection& connection);
  void end(Connection& connection);

  base::EventLoop& loop_;
  std::function<std::string()> metrics_;
  base::UniqueFd listener_;
  std::optional<base::SpareFd> spare_;
  base::Timer pause_;
  std::unique_ptr<base::FdWatch> watch_;
  std::list<Connection> connections_;  // oldest first
  bool burial_posted_ = false;
};

/// Listens where --metrics-port says; a note tells which port the kernel has chosen. With --adopt
/// one dtrun stands for each rank: each listens as many ports on as its rank's number on the
/// machine. Closed: nobody asked for it. @throws Error kUsage where the place cannot be had
base::UniqueFd listen_for_scrapes(const LaunchPlan& plan);

}  // namespace dtrun::launcher
