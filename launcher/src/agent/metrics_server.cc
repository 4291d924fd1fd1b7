#include "agent/metrics_server.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "output/notice.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {
namespace {

constexpr std::string_view kEnd = "\r\n\r\n";
/// When the system could not do what it was asked.
constexpr auto kPause = std::chrono::milliseconds(100);

std::string response_of(std::string_view status, std::string_view more_headers,
                        std::string_view body, bool with_body = true) {
  std::string text = fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n",
                                 status, body.size(), more_headers);
  if (with_body) text += body;
  return text;
}

std::string refusal(std::string_view status, std::string_view more_headers = "") {
  return response_of(status,
                     fmt::format("Content-Type: text/plain; charset=utf-8\r\n{}", more_headers),
                     fmt::format("{}\nThe metrics are at /metrics.\n", status));
}

}  // namespace

std::string http_response(std::string_view request, const std::function<std::string()>& metrics) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const auto first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || first == 0 ||
      !line.substr(last + 1).starts_with("HTTP/1."))
    return refusal("400 Bad Request");
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  target = target.substr(0, target.find('?'));
  if (target != "/metrics") return refusal("404 Not Found");
  if (method != "GET" && method != "HEAD")
    return refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  return response_of("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
                     metrics(), method == "GET");
}

MetricsServer::MetricsServer(base::EventLoop& loop, base::UniqueFd listener,
                             std::function<std::string()> metrics)
    : loop_(loop), metrics_(std::move(metrics)), listener_(std::move(listener)), pause_(loop) {
  if (!listener_) return;
  spare_.emplace();
  base::set_nonblocking(listener_.get());
  watch_ = std::make_unique<base::FdWatch>(loop, listener_.get());
  watch_->on_readable([this] { accept_one(); });
}

void MetricsServer::accept_one() {
  base::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) return admit(std::move(socket));
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED || errno == EPROTO) return;
  // The listener would stay readable for ever. Where a descriptor is missing the client is turned
  // away: it sees that, and comes again.
  if (errno == EMFILE || errno == ENFILE)
    spare_->lend([&] {
      base::UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
    });
  look_again_later();
}

void MetricsServer::look_again_later() {
  watch_->on_readable(nullptr);
  pause_.start(base::Deadline::after(kPause),
               [this] { watch_->on_readable([this] { accept_one(); }); });
}

void MetricsServer::admit(base::UniqueFd socket) {
  try {
    connections_.emplace_back(loop_, std::move(socket));
  } catch (const std::exception& error) {  // the kernel has no room to watch it
    return base::log::warning(base::log::Component::kLauncher,
                              "a client of the metrics is lost: {}", error.what());
  }
  Connection& connection = connections_.back();
  connection.watch.on_readable([this, &connection] { read(connection); });
  connection.patience.start(base::Deadline::after(kPatience),
                            [this, &connection] { end(connection); });
  const auto living = [](const Connection& one) { return !one.is_over; };
  if (std::count_if(connections_.begin(), connections_.end(), living) >
      static_cast<std::ptrdiff_t>(kMostConnections))
    end(*std::find_if(connections_.begin(), connections_.end(), living));
}

void MetricsServer::read(Connection& connection) {
  char bytes[4096];
  const ssize_t n = ::recv(connection.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // One that sends no more gets its answer.
  if (n == 0 && !connection.response.empty()) return connection.watch.on_readable(nullptr);
  if (n <= 0) return end(connection);
  // What comes after the request is read and forgotten: to close a socket with unread bytes would
  // take the answer back.
  if (connection.answers) return;
  connection.request.append(bytes, static_cast<std::size_t>(n));
  const auto end_of_request = connection.request.find(kEnd);
  if (end_of_request != std::string::npos) {
    connection.request.resize(end_of_request + kEnd.size());
    return answer(connection);
  }
  if (connection.request.size() < kMostRequestBytes) return;
  connection.response = refusal("431 Request Header Fields Too Large");
  connection.answers = true;
  write(connection);
}

void MetricsServer::answer(Connection& connection) {
  connection.response = http_response(connection.request, metrics_);
  connection.answers = true;
  write(connection);
}

void MetricsServer::write(Connection& connection) {
  std::string& rest = connection.response;
  while (!rest.empty()) {
    const ssize_t n =
        ::send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN)
      return connection.watch.on_writable([this, &connection] { write(connection); });
    if (n < 0) return end(connection);
    rest.erase(0, static_cast<std::size_t>(n));
  }
  connection.watch.on_writable(nullptr);
  // The client closes, or the patience ends.
  ::shutdown(connection.fd.get(), SHUT_WR);
}

void MetricsServer::end(Connection& connection) {
  if (std::exchange(connection.is_over, true)) return;
  connection.watch.on_readable(nullptr);
  connection.watch.on_writable(nullptr);
  connection.patience.cancel();
  ::shutdown(connection.fd.get(), SHUT_RDWR);
  if (std::exchange(burial_posted_, true)) return;
  loop_.post([this] {  // none of their watches is on the stack
    burial_posted_ = false;
    connections_.remove_if([](const Connection& one) { return one.is_over; });
  });
}

base::UniqueFd listen_for_scrapes(const LaunchPlan& plan) {
  if (!plan.options.metrics) return {};
  base::HostPort place = *plan.options.metrics;
  const int offset = plan.options.adopted ? plan.options.adopted->local_rank : 0;
  if (*place.port != 0 && *place.port + offset > 65535)
    throw base::Error(base::ErrorCode::kUsage,
                      fmt::format("--metrics-port={}: local rank {} would need port {}",
                                  place.to_string(), offset, *place.port + offset),
                      "", "name a lower port");
  if (*place.port != 0) place.port = static_cast<std::uint16_t>(*place.port + offset);
  base::UniqueFd listener;
  try {
    listener = base::listen_tcp(place.host, *place.port);
  } catch (const base::Error& error) {
    throw base::Error(base::ErrorCode::kUsage,
                      fmt::format("cannot serve metrics at {}", place.to_string()),
                      error.why().empty() ? error.summary() : error.why(),
                      "name another port, or 0 for any that is free");
  }
  if (*place.port == 0) {
    place.port = base::local_port(listener.get());
    print_note(plan, fmt::format("metrics are at http://{}/metrics", place.to_string()));
  }
  return listener;
}

}  // namespace dtrun::launcher
