#include "rounds/agent_dialer.h"

#include <fmt/core.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "wire/numeric_address.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::UniqueFd;

// How long one address may take before the next one is tried beside it.
constexpr auto kStagger = std::chrono::milliseconds(250);

}  // namespace

AgentDialer::AgentDialer(base::EventLoop& loop, std::string host, std::uint16_t port,
                         Deadline::Duration limit, Callback on_end)
    : loop_(loop), port_(port), on_end_(std::move(on_end)), limit_(loop), stagger_(loop) {
  why_ = fmt::format("looking up the name '{}' takes long", host);
  limit_.start(Deadline::after(limit), [this] { end({}); });
  if (is_numeric(host)) {
    addresses_ = {std::move(host)};
    stagger_.start(Deadline::after({}), [this] { try_next(); });
    return;
  }
  // The work must not refer to this object, because it may outlive it. Its callback does not.
  lookup_ = std::make_unique<base::BackgroundCall>(loop, [this, host = std::move(host)] {
    std::vector<std::string> addresses;
    std::string why;
    try {
      addresses = base::resolve_addresses(host);
    } catch (const base::Error& error) {
      why = fmt::format("{}: {}", error.summary(), error.why());
    }
    return base::BackgroundCall::Outcome([this, addresses, why] {
      addresses_.assign(addresses.rbegin(), addresses.rend());
      why_ = why;
      try_next();
    });
  });
}

void AgentDialer::try_next() {
  while (!addresses_.empty()) {
    const std::string address = std::move(addresses_.back());
    addresses_.pop_back();
    UniqueFd fd = start_connecting(address, port_, why_);
    if (!fd) continue;
    if (attempts_.empty()) why_ = "no answer";
    attempts_.push_back({std::move(fd), nullptr});
    const auto attempt = std::prev(attempts_.end());
    attempt->watch = std::make_unique<base::FdWatch>(loop_, attempt->socket.get());
    attempt->watch->on_writable([this, attempt] { look_at(attempt); });
    if (!addresses_.empty()) stagger_.start(Deadline::after(kStagger), [this] { try_next(); });
    return;
  }
  if (attempts_.empty()) end({});
}

void AgentDialer::look_at(Attempts::iterator attempt) {
  int error_number = 0;
  socklen_t length = sizeof error_number;
  ::getsockopt(attempt->socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &length);
  attempt->watch.reset();
  if (error_number == 0) return end(std::move(attempt->socket));
  why_ = strerrordesc_np(error_number);
  attempts_.erase(attempt);
  if (attempts_.empty() || !addresses_.empty()) try_next();
}

void AgentDialer::end(UniqueFd socket) {
  limit_.cancel();
  stagger_.cancel();
  attempts_.clear();
  const Callback on_end = std::move(on_end_);
  const std::string why = why_;
  on_end(std::move(socket), why);
}

}  // namespace dtrun::rendezvous
