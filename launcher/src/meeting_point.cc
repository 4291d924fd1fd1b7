#include "meeting_point.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "host_election.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::Error;
using base::log::Component;

constexpr auto kResolvePatience = std::chrono::seconds(5);

// The resolver can only be asked again; poll() on nothing is the wait.
void resolve(const Options& options, EndpointFacts& facts) {
  const Deadline deadline =
      Deadline::after(std::min<Deadline::Duration>(kResolvePatience, options.rounds.join_timeout));
  while (true) {
    try {
      facts.addresses = base::resolve_addresses(options.master_addr);
      return;
    } catch (const Error& error) {
      facts.resolve_error = error.why();
    }
    if (deadline.expired()) return;
    constexpr int kPauseMs = 200;
    ::poll(nullptr, 0, std::min(kPauseMs, deadline.poll_timeout_ms()));
  }
}

EndpointFacts gather_facts(const Options& options) {
  EndpointFacts facts;
  facts.own_addresses = base::interface_addresses();
  facts.own_names = {base::host_name()};
  if (options.hosting == Hosting::kAlways || options.master_addr == facts.own_names[0]) {
    try {
      facts.addresses = base::resolve_addresses(options.master_addr);
    } catch (const Error& error) {
      facts.resolve_error = error.why();  // it is this machine all the same
    }
    return facts;
  }
  resolve(options, facts);
  facts.own_names.push_back(base::whole_host_name());
  return facts;
}

MeetingPoint host_or_join(const Options& options, const HostElection& election) {
  const std::string endpoint = base::HostPort{options.master_addr, options.master_port}.to_string();
  if (election.role == HostElection::Role::kMember) {
    base::log::info(Component::kLauncher, "joins the rendezvous at {}: {}", endpoint,
                    election.reason);
    return {{}, election.reason};
  }
  const std::uint16_t port = options.master_port.value_or(0);
  const bool somebody_else_may_host =
      options.rounds.max_nodes > 1 && options.hosting != Hosting::kAlways;
  base::UniqueFd listener = somebody_else_may_host
                                ? base::listen_tcp_unless_taken(election.listen_address, port)
                                : base::listen_tcp(election.listen_address, port);
  if (listener) {
    base::log::info(Component::kLauncher, "hosts the rendezvous at {}, listening on {}: {}",
                    endpoint, election.listen_address, election.reason);
    return {std::move(listener), election.reason};
  }
  // Another agent of this machine was faster; whether it is one, its answer will show.
  const std::string reason = election.reason + ", and its port is held by another process here";
  base::log::info(Component::kLauncher, "joins the rendezvous at {}: {}", endpoint, reason);
  return {{}, reason};
}

}  // namespace

MeetingPoint find_meeting_point(const LaunchPlan& plan) {
  const Options& options = plan.options;
  if (options.rendezvous == Rendezvous::kC10d)
    return host_or_join(options, elect_host(options, gather_facts(options)));
  if (options.node_rank != 0) return {};
  return {base::listen_tcp(options.master_addr, options.master_port.value_or(0)), ""};
}

}  // namespace dtrun::launcher
