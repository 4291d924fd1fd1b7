#include "meeting/host_election.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

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

// A link-local address is valid on one link only, and only with the link's name.
bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:") || address.starts_with("169.254.");
}

// The same order on all machines, IPv4 first. The resolver's own depends on who asks.
std::vector<std::string> in_common_order(std::vector<std::string> addresses) {
  const auto key = [](const std::string& address) {
    std::array<unsigned char, 17> bytes{};
    const bool v6 = address.find(':') != std::string::npos;
    bytes[0] = v6 ? 1 : 0;
    ::inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), &bytes[1]);
    return std::pair(bytes, address);
  };
  std::sort(addresses.begin(), addresses.end(),
            [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
  return addresses;
}

// Those by which other machines can come, unless the name means the loopback everywhere.
std::vector<std::string> addresses_of_endpoint(const EndpointFacts& facts) {
  std::vector<std::string> result = in_common_order(facts.addresses);
  if (!std::all_of(result.begin(), result.end(), is_loopback))
    result.erase(std::remove_if(result.begin(), result.end(), is_loopback), result.end());
  return result;
}

std::string any_address(const EndpointFacts& facts) {
  const bool has_v4 =
      std::any_of(facts.own_addresses.begin(), facts.own_addresses.end(),
                  [](const std::string& a) { return a.find(':') == std::string::npos; });
  return has_v4 ? "0.0.0.0" : "::";
}

// Always one and the same of several: agents that share a machine must not both find a free one.
std::string choose_listen_address(const Options& options, const EndpointFacts& facts) {
  const bool stays_here = options.rounds.max_nodes == 1 || options.master_addr == "localhost" ||
                          is_loopback(options.master_addr);
  for (const std::string& address : addresses_of_endpoint(facts))
    if (is_own(address, facts) && (stays_here || !is_loopback(address))) return address;
  // The name means this machine, but not by an address that the others can use. They have their
  // own for it, which cannot be known here.
  return any_address(facts);
}

// Empty: the name does not mean this machine.
std::string why_it_is_here(const std::string& name, const EndpointFacts& facts) {
  if (contains(facts.own_names, name)) return fmt::format("{} is the name of this machine", name);
  const std::vector<std::string> addresses = addresses_of_endpoint(facts);
  if (addresses.empty() || !is_own(addresses[0], facts)) return "";
  return name == addresses[0]
             ? fmt::format("{} is an address of this machine", name)
             : fmt::format("{} is {}, an address of this machine", name, addresses[0]);
}

// The name stands for several machines, and this one is not the first of them.
std::string why_another_machine_is_first(const std::string& name, const EndpointFacts& facts) {
  const std::vector<std::string> addresses = addresses_of_endpoint(facts);
  for (const std::string& address : addresses)
    if (is_own(address, facts))
      return fmt::format(
          "{} is several machines, and the one with the first address hosts, {}; "
          "this one has {}",
          name, addresses[0], address);
  return "";
}

// The name resolves to an address like 127.0.1.1 of /etc/hosts. For this machine's own name that is
// allowed, because the other machines resolve it to another address.
bool is_loopback_by_name(const std::string& name, const EndpointFacts& facts) {
  const auto short_name = [](const std::string& whole) { return whole.substr(0, whole.find('.')); };
  return name != "localhost" && !is_loopback(name) && !facts.addresses.empty() &&
         std::all_of(facts.addresses.begin(), facts.addresses.end(), is_loopback) &&
         std::none_of(facts.own_names.begin(), facts.own_names.end(),
                      [&](const std::string& own) { return short_name(own) == short_name(name); });
}

// Each of the step's nodes would host, and wait for the others.
void check_loopback(const Options& options, const EndpointFacts& facts) {
  const std::string& name = options.master_addr;
  if (options.rounds.max_nodes == 1 || options.step_nodes.empty()) return;
  if (!is_loopback_by_name(name, facts)) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("the host '{}' of --rdzv_endpoint is {}, which every node is itself",
                          name, facts.addresses.front()),
              fmt::format("the Slurm step's nodes are {}", options.step_nodes),
              "name one of them, or leave --rdzv_endpoint out; getent hosts NAME shows what "
              "/etc/hosts makes of a name");
}

HostElection member(const EndpointFacts& facts, std::string reason) {
  return {HostElection::Role::kMember, std::move(reason), "", addresses_of_endpoint(facts)};
}

HostElection host(const Options& options, const EndpointFacts& facts, std::string reason) {
  if (options.node_rank.value_or(0) != 0)
    return member(facts, fmt::format("{}, but node 0 hosts, and this is node {} by --node_rank",
                                     reason, *options.node_rank));
  // Each of several machines would host a job of its own, and none of them would notice.
  if (options.rounds.max_nodes > 1 &&
      (options.master_addr == "localhost" || is_loopback(options.master_addr)))
    reason = fmt::format("{} is every machine itself, so only agents of this one can join",
                         options.master_addr);
  if (options.rounds.max_nodes > 1 && is_loopback_by_name(options.master_addr, facts))
    reason += fmt::format(
        "; a machine on which {} is {} hosts a job of its own: where there are others, name one of "
        "them by its address in --rdzv_endpoint",
        options.master_addr, facts.addresses.front());
  std::string address = choose_listen_address(options, facts);
  std::vector<std::string> reached_at = {address};
  if (address == "0.0.0.0") reached_at = {"127.0.0.1"};
  if (address == "::") reached_at = {"::1"};
  return {HostElection::Role::kHost, std::move(reason), std::move(address), std::move(reached_at)};
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

HostElection elect_host(const Options& options, const EndpointFacts& facts) {
  const std::string& name = options.master_addr;
  if (options.hosting == Hosting::kAlways)
    return host(options, facts, "is_host=true in --rdzv_conf");
  if (options.hosting == Hosting::kByAddress) check_loopback(options, facts);
  const std::string here = why_it_is_here(name, facts);
  if (!here.empty() && options.hosting == Hosting::kNever)
    return member(facts, here + ", but is_host=false in --rdzv_conf");
  if (!here.empty()) return host(options, facts, here);
  if (facts.addresses.empty()) throw unresolved(options, facts);
  if (std::string first = why_another_machine_is_first(name, facts); !first.empty())
    return member(facts, std::move(first));
  const std::string seen = join(addresses_of_endpoint(facts));
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
  return member(facts, reason);
}

OwnAddress choose_own_address(const Options& options, const EndpointFacts& facts) {
  if (options.rounds.max_nodes == 1 && options.local_addr.empty())
    return {"127.0.0.1", "127.0.0.1", "there is one node"};
  if (!options.local_addr.empty()) {
    if (facts.addresses.empty())
      throw Error(ErrorCode::kConnection,
                  fmt::format("--local_addr={} does not resolve", options.local_addr),
                  facts.resolve_error, "give an address of this machine (ip -brief address)");
    for (const std::string& address : in_common_order(facts.addresses))
      if (is_own(address, facts))
        return {
            is_loopback(address) && !is_loopback(options.local_addr) ? any_address(facts) : address,
            options.local_addr, "--local_addr says so"};
    throw Error(ErrorCode::kUsage,
                fmt::format("--local_addr={} is no address of this machine", options.local_addr),
                fmt::format("it has {}", join(facts.own_addresses)),
                "name one of these, different on each node");
  }
  for (const std::string& address : in_common_order(facts.addresses))
    if (is_own(address, facts) && !is_loopback(address))
      return {address, address, fmt::format("the machine's name means {}", address)};
  for (const std::string& address : in_common_order(facts.own_addresses))
    if (!is_loopback(address) && !is_link_local(address))
      return {address, address,
              fmt::format("{} is the first address of this machine; --local_addr names another",
                          address)};
  return {"127.0.0.1", "127.0.0.1", "this machine has no address but the loopback"};
}

}  // namespace dtrun::launcher
