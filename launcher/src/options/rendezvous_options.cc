#include "options/rendezvous_options.h"

#include <fmt/core.h>

#include <unistd.h>

#include <climits>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/etcd_options.h"
#include "dtrun/rendezvous/master_address.h"
#include "options/node_range.h"
#include "options/rendezvous_conf.h"
#include "options/restart_options.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::uint16_t kC10dPort = 29400, kStaticPort = 29500;  // torchrun's

// An error says first what the value must be.
template <typename Parse>
auto parse_as(const char* what, Parse parse, const std::string& text) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw demand(fmt::format("must be {}: {}", what, error.summary()));
  }
}

// A name or an address; one of IPv6 may stand in brackets.
std::string parse_host(const std::string& text) {
  const base::HostPort address = parse_as("a host", base::HostPort::parse, text);
  if (address.port) throw demand("must be a host without a port");
  return address.host;
}

// Its form is the backend's.
void read_endpoint(const std::string& text, Options& options) {
  if (options.rendezvous == Rendezvous::kFile) {
    options.head_file = text;
  } else if (options.rendezvous == Rendezvous::kEtcd) {
    options.etcd.endpoints = parse_as("HOST:PORT of etcd, or several with commas",
                                      rendezvous::EtcdOptions::parse_endpoints, text);
    options.etcd.named = true;
  } else {
    const base::HostPort place = parse_as("HOST or HOST:PORT", base::HostPort::parse, text);
    options.master_addr = place.host;
    options.master_port = place.port;
    if (!place.port && options.rendezvous == Rendezvous::kC10d) options.master_port = kC10dPort;
  }
}

// What no option says.
void complete_endpoint(const CommandLine& line, Options& options) {
  const bool is_static = options.rendezvous == Rendezvous::kStatic;
  for (const char* name : {"master-addr", "master-port"})
    if (line.has(name) && !is_static)
      options.warnings.push_back(fmt::format(
          "dtrun: {} is without effect: with --rdzv_backend={} --rdzv_endpoint says where nodes "
          "meet",
          line.get(name).origin, line.get("rdzv-backend").value));
  if (options.rendezvous == Rendezvous::kEtcd) {
    std::vector<base::HostPort>& endpoints = options.etcd.endpoints;
    // torchrun's default; the first stands for all in messages.
    if (!options.etcd.named) endpoints = rendezvous::EtcdOptions::parse_endpoints("localhost");
    options.master_addr = endpoints.front().host;
    options.master_port = endpoints.front().port;
  }
  if (options.rounds.max_nodes == 1 || !is_static) return;
  if (!options.master_port) options.master_port = kStaticPort;
  if (!line.has("master-addr") && !line.has("rdzv-endpoint"))
    options.warnings.push_back(fmt::format(
        "dtrun: no --master_addr is given, so it is {}, as under torchrun: only dtruns on this "
        "machine can join; on several machines each waits for the others in vain",
        options.master_addr));
}

void apply(const RendezvousConf& conf, Options& options) {
  rendezvous::rounds::RoundSettings& rounds = options.rounds;
  rounds.join_timeout = conf.join_timeout.value_or(rounds.join_timeout);
  rounds.last_call_timeout = conf.last_call_timeout.value_or(rounds.last_call_timeout);
  rounds.close_timeout = conf.close_timeout.value_or(rounds.close_timeout);
  rounds.keep_alive_interval = conf.keep_alive_interval.value_or(rounds.keep_alive_interval);
  constexpr int kAttempts = 3;  // torchrun's
  rounds.silence_window =
      rounds.keep_alive_interval * conf.keep_alive_max_attempt.value_or(kAttempts);
  options.answer_timeout = conf.read_timeout.value_or(options.answer_timeout);
  options.hosting = conf.hosting;
  options.etcd.protocol = conf.protocol;
  options.etcd.certificate_file = conf.ssl_cert;
  options.etcd.key_file = conf.ssl_cert_key;
  options.etcd.authority_file = conf.ca_cert;
  options.token_file = conf.token_file;
  options.proof = conf.proof;
  options.store_token = conf.store_token;
}

// The static rendezvous meets at --master_addr.
void drop_local_addr(const CommandLine& line, Options& options) {
  if (!line.has("local-addr") || options.rendezvous != Rendezvous::kStatic) return;
  options.local_addr.clear();
  options.warnings.push_back(fmt::format(
      "dtrun: {} is without effect: with the static rendezvous MASTER_ADDR is --master_addr",
      line.get("local-addr").origin));
}

void check_node_rank(const CommandLine& line, const Options& options) {
  if (!line.has("node-rank")) return;
  const std::string& origin = line.get("node-rank").origin;
  const int nodes = options.rounds.max_nodes;
  if (options.node_rank.value_or(0) >= nodes)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{}={} does not exist in a job of {} node{}", origin, *options.node_rank, nodes,
                    nodes == 1 ? "" : "s"),
        nodes == 1 ? "nodes are counted from 0"
                   : fmt::format("nodes are counted from 0, so the last one is node {}", nodes - 1),
        nodes == 1 ? "give --nnodes too, the same on every node"
                   : fmt::format("--node_rank from 0 to {}, or a larger --nnodes on every node",
                                 nodes - 1));
  if (options.hosting == Hosting::kAlways && options.node_rank.value_or(0) != 0)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{}={} and is_host=true contradict each other", origin, *options.node_rank),
        "the host is node 0", "leave one of them out");
}

// Checks that the nodes can find each other.
void check_endpoint(const CommandLine& line, const Options& options) {
  const bool is_static = options.rendezvous == Rendezvous::kStatic;
  const bool several = options.rounds.max_nodes > 1;
  if (is_static && line.has("rdzv-endpoint") &&
      (line.has("master-addr") || line.has("master-port")))
    throw Error(ErrorCode::kUsage,
                "--rdzv_endpoint and --master_addr, --master_port name the same thing", "",
                "leave one of them out");
  if (options.rendezvous == Rendezvous::kFile && options.head_file.empty())
    throw Error(ErrorCode::kUsage, "store_type=file in --rdzv_conf needs --rdzv_endpoint",
                "the nodes meet through a file", "--rdzv_endpoint=/path/that/all/nodes/share");
  if (several && options.rendezvous == Rendezvous::kC10d && !line.has("rdzv-endpoint"))
    throw Error(ErrorCode::kUsage, "a job of several nodes needs --rdzv_endpoint",
                "the nodes must know where to meet",
                "--rdzv_endpoint=HOST:PORT, with HOST one of the nodes, the same on every node");
  if (several && options.master_port == 0 && options.rendezvous != Rendezvous::kFile)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is for one node",
                            is_static ? "--master_port=0" : "port 0 in --rdzv_endpoint"),
                "", "the other nodes must know the port of node 0: name one");
}

void check_backend(const CommandLine& line, const Options& options) {
  if (options.rounds.elastic() && options.rendezvous == Rendezvous::kStatic)
    throw Error(ErrorCode::kUsage,
                fmt::format("{}={} needs --rdzv_backend=c10d or etcd-v2", line.get("nnodes").origin,
                            line.get("nnodes").value),
                "the static rendezvous has a fixed number of nodes",
                "--rdzv_backend=c10d --rdzv_endpoint=HOST:PORT, the same on every node");
  if (line.has("standalone") && options.rounds.max_nodes > 1)
    throw Error(ErrorCode::kUsage,
                fmt::format("--standalone is for one node, and {}={} names more",
                            line.get("nnodes").origin, line.get("nnodes").value),
                "", "leave one of them out");
}

}  // namespace

void drop_meeting_options(CommandLine& line, Options& options) {
  for (const char* name :
       {"rdzv-backend", "rdzv-endpoint", "master-addr", "master-port", "node-rank"}) {
    if (!line.has(name)) continue;
    options.tell_without_effect(line.get(name), "--standalone meets nobody");
    line.values.erase(name);
  }
}

void bind_rendezvous_options(OptionBinding& binding, const RendezvousConf& conf, Options& options) {
  apply(conf, options);
  binding.choice(
      "rdzv-backend", options.rendezvous,
      {{"static", Rendezvous::kStatic},
       {"c10d", conf.store_type == StoreType::kFile ? Rendezvous::kFile : Rendezvous::kC10d},
       {"etcd-v2", Rendezvous::kEtcd},
       {"etcd", Rendezvous::kEtcd}});
  binding.parsed("nnodes", [&options](const std::string& text) {
    const NodeRange range = parse_node_range(text);
    options.rounds.min_nodes = range.least;
    options.rounds.max_nodes = range.most;
  });
  bind_restart_options(binding, options.rounds);
  // These three come after the backend, because it decides whether and how they are read.
  binding.parsed("rdzv-endpoint",
                 [&options](const std::string& text) { read_endpoint(text, options); });
  binding.parsed("master-addr", [&options](const std::string& text) {
    if (options.rendezvous == Rendezvous::kStatic) options.master_addr = parse_host(text);
  });
  binding.parsed("master-port", [&options](const std::string& text) {
    if (options.rendezvous == Rendezvous::kStatic) options.master_port = within(0, 65535)(text);
  });
  binding.parsed("node-rank", options.node_rank, within(0, INT_MAX));
  binding.parsed("listener-fd", options.listener_fd, within(STDERR_FILENO + 1, INT_MAX));
  binding.text("rdzv-id", options.run_id);
  binding.parsed("join-timeout", options.rounds.join_timeout, parse_seconds);
  binding.parsed("local-addr", options.local_addr, parse_host);
  binding.text("iface", options.interface_name);
  binding.parsed("port-range", options.ports, parse_port_range);
}

void complete_rendezvous_options(const CommandLine& line, const RendezvousConf& conf,
                                 Options& options) {
  if (options.rendezvous == Rendezvous::kStatic && !options.node_rank) options.node_rank = 0;
  if (options.rendezvous != Rendezvous::kC10d) options.hosting = Hosting::kByAddress;
  // A given --join_timeout is also the patience with a head that is not there yet.
  if (conf.join_timeout || line.has("join-timeout"))
    options.head_patience = options.rounds.join_timeout;
  complete_endpoint(line, options);
  const NodeCount nodes = options.rounds.elastic() ? NodeCount::kElastic : NodeCount::kFixed;
  for (std::string& warning : keys_without_effect(conf, options.rendezvous, nodes))
    options.warnings.push_back(std::move(warning));
  drop_local_addr(line, options);
  check_backend(line, options);
  check_endpoint(line, options);
  check_node_rank(line, options);
}

void check_engine_endpoint(const std::optional<Engine>& engine, const Options& options) {
  const bool at_a_host =
      options.rendezvous == Rendezvous::kStatic || options.rendezvous == Rendezvous::kC10d;
  const bool everywhere = at_a_host && (options.master_addr == "localhost" ||
                                        rendezvous::is_loopback(options.master_addr));
  if (!engine || options.rounds.max_nodes == 1 || !everywhere) return;
  if (engine->nodes.value_or(1) < 2) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("'{}' is every node itself, and {} has {} nodes", options.master_addr,
                          engine->name, *engine->nodes),
              engine->node_list.empty() ? "" : "they are " + engine->node_list,
              "name one of these nodes in --rdzv_endpoint or --master_addr");
}

}  // namespace dtrun::launcher
