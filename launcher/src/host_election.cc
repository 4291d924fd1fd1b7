#include "host_election.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string join(const std::vector<std::string>& list) {
  std::string result;
  for (const std::string& item : list) result += (result.empty() ? "" : ", ") + item;
  return result;
}

// All of 127/8 is this machine.
bool is_own(const std::string& address, const EndpointFacts& facts) {
  return contains(facts.own_addresses, address) || address.starts_with("127.");
}

bool is_wildcard(const std::string& address) {
  return address == "0.0.0.0" || address == "::";
}

// Always one and the same of several: agents that share a machine must not both find a free one.
std::string choose_listen_address(const Options& options, const EndpointFacts& facts) {
  const bool stays_here = options.rounds.max_nodes == 1 || options.master_addr == "localhost" ||
                          is_loopback(options.master_addr);
  for (const std::string& address : facts.addresses)
    if (is_own(address, facts) && (stays_here || !is_loopback(address))) return address;
  // The name means this machine, but not by an address that the others can use. They have their
  // own for it, which cannot be known here.
  const bool has_v4 =
      std::any_of(facts.own_addresses.begin(), facts.own_addresses.end(),
                  [](const std::string& a) { return a.find(':') == std::string::npos; });
  return has_v4 ? "0.0.0.0" : "::";
}

// Empty: the name does not mean this machine.
std::string why_it_is_here(const std::string& name, const EndpointFacts& facts) {
  if (contains(facts.own_names, name)) return fmt::format("{} is the name of this machine", name);
  for (const std::string& address : facts.addresses)
    if (is_own(address, facts))
      return name == address ? fmt::format("{} is an address of this machine", name)
                             : fmt::format("{} is {}, an address of this machine", name, address);
  return "";
}

HostElection member(std::string reason) {
  return {HostElection::Role::kMember, std::move(reason), ""};
}

HostElection host(const Options& options, const EndpointFacts& facts, std::string reason) {
  if (options.node_rank.value_or(0) != 0)
    return member(fmt::format("{}, but node 0 hosts, and this is node {} by --node_rank", reason,
                              *options.node_rank));
  return {HostElection::Role::kHost, std::move(reason), choose_listen_address(options, facts)};
}

Error unresolved(const Options& options, const EndpointFacts& facts) {
  return Error(
      ErrorCode::kConnection,
      fmt::format("the host '{}' of --rdzv_endpoint is not known on {}", options.master_addr,
                  facts.own_names.empty() ? "this machine" : facts.own_names.front()),
      facts.resolve_error,
      "name one of the job's nodes as all of them know it (getent hosts NAME shows "
      "whether one does), or give its address");
}

}  // namespace

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

HostElection elect_host(const Options& options, const EndpointFacts& facts) {
  const std::string& name = options.master_addr;
  if (options.hosting == Hosting::kAlways)
    return host(options, facts, "is_host=true in --rdzv_conf");
  const std::string here = why_it_is_here(name, facts);
  if (!here.empty() && options.hosting == Hosting::kNever)
    return member(here + ", but is_host=false in --rdzv_conf");
  if (!here.empty()) return host(options, facts, here);
  if (facts.addresses.empty()) throw unresolved(options, facts);
  const std::string seen = join(facts.addresses);
  const std::string reason =
      fmt::format("{}{} is no address of this machine ({})", name,
                  seen == name ? "" : fmt::format(" ({})", seen), join(facts.own_addresses));
  if (options.rounds.max_nodes == 1 ||
      (options.node_rank == 0 && options.hosting != Hosting::kNever))
    throw Error(
        ErrorCode::kUsage,
        fmt::format("this is node 0, and --rdzv_endpoint names another machine, '{}'", name),
        reason,
        options.rounds.max_nodes == 1 ? "name this machine, or leave --rdzv_endpoint out"
                                      : "the endpoint must be node 0's: name its machine there, "
                                        "or leave --node_rank out on all nodes");
  return member(reason);
}

std::string master_address(const std::string& endpoint_host, const std::string& listening_at,
                           const std::vector<std::string>& reached_at) {
  if (!is_loopback(listening_at) && !is_wildcard(listening_at)) return endpoint_host;
  for (const std::string& address : reached_at)
    if (!is_loopback(address)) return address;
  return endpoint_host;
}

}  // namespace dtrun::launcher
