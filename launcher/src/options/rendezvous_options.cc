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

Rendezvous read_backend(const OptionValues& values, const RendezvousConf& conf) {
  const std::string text = values.text("rdzv-backend", "static");
  if (text == "static") return Rendezvous::kStatic;
  if (text == "c10d")
    return conf.store_type == StoreType::kFile ? Rendezvous::kFile : Rendezvous::kC10d;
  if (text == "etcd" || text == "etcd-v2") return Rendezvous::kEtcd;
  values.reject("rdzv-backend", "must be static, c10d or etcd-v2");
}

void read_node_count(const OptionValues& values, Options& options) {
  if (!values.has("nnodes")) return;
  try {
    const NodeRange range = parse_node_range(values.get("nnodes").value);
    options.rounds.min_nodes = range.least;
    options.rounds.max_nodes = range.most;
  } catch (const Error& error) {
    values.reject("nnodes", error.summary());
  }
}

void read_host_port(const OptionValues& values, Options& options) {
  base::HostPort endpoint;
  try {
    endpoint = base::HostPort::parse(values.get("rdzv-endpoint").value);
  } catch (const Error& error) {
    values.reject("rdzv-endpoint", fmt::format("must be HOST or HOST:PORT: {}", error.summary()));
  }
  options.master_addr = endpoint.host;
  options.master_port = endpoint.port;
  if (endpoint.port) return;
  if (options.rendezvous == Rendezvous::kC10d) options.master_port = kC10dPort;
}

// The members of one cluster; the first stands for all in messages.
void read_etcd_endpoints(const OptionValues& values, Options& options) {
  try {
    options.etcd.endpoints =
        rendezvous::EtcdOptions::parse_endpoints(values.text("rdzv-endpoint", "localhost"));
  } catch (const Error& error) {
    values.reject(
        "rdzv-endpoint",
        fmt::format("must be HOST:PORT of etcd, or several with commas: {}", error.summary()));
  }
  options.etcd.named = values.has("rdzv-endpoint");
  options.master_addr = options.etcd.endpoints.front().host;
  options.master_port = options.etcd.endpoints.front().port;
}

// A name or an address; one of IPv6 may stand in brackets.
std::string read_host(const OptionValues& values, const char* name) {
  try {
    const base::HostPort address = base::HostPort::parse(values.get(name).value);
    if (address.port) values.reject(name, "must be a host without a port");
    return address.host;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUsage) throw;
    values.reject(name, fmt::format("must be a host: {}", error.summary()));
  }
}

// Where the agents meet.
void read_endpoint(const OptionValues& values, Options& options) {
  const bool is_static = options.rendezvous == Rendezvous::kStatic;
  for (const char* name : {"master-addr", "master-port"}) {
    if (!values.has(name) || is_static) continue;
    options.warnings.push_back(fmt::format(
        "dtrun: {} is without effect: with --rdzv_backend={} --rdzv_endpoint says where nodes "
        "meet",
        values.get(name).origin, values.get("rdzv-backend").value));
  }
  if (options.rendezvous == Rendezvous::kFile) {
    options.head_file = values.text("rdzv-endpoint", "");
  } else if (options.rendezvous == Rendezvous::kEtcd) {
    read_etcd_endpoints(values, options);
  } else if (values.has("rdzv-endpoint")) {
    read_host_port(values, options);
  } else if (is_static) {
    if (values.has("master-addr")) options.master_addr = read_host(values, "master-addr");
    if (values.has("master-port"))
      options.master_port = static_cast<std::uint16_t>(values.integer("master-port", 0, 0, 65535));
  }
  if (options.rounds.max_nodes == 1 || !is_static) return;
  if (!options.master_port) options.master_port = kStaticPort;
  if (!values.has("master-addr") && !values.has("rdzv-endpoint"))
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
  options.hosting = options.rendezvous == Rendezvous::kC10d ? conf.hosting : Hosting::kByAddress;
  options.etcd.protocol = conf.protocol;
  options.etcd.certificate_file = conf.ssl_cert;
  options.etcd.key_file = conf.ssl_cert_key;
  options.etcd.authority_file = conf.ca_cert;
  options.token_file = conf.token_file;
  options.proof = conf.proof;
  options.store_token = conf.store_token;
  for (std::string& warning : keys_without_effect(
           conf, options.rendezvous, rounds.elastic() ? NodeCount::kElastic : NodeCount::kFixed))
    options.warnings.push_back(std::move(warning));
}

void read_local_addr(const OptionValues& values, Options& options) {
  if (!values.has("local-addr")) return;
  options.local_addr = read_host(values, "local-addr");
  if (options.rendezvous != Rendezvous::kStatic) return;
  options.local_addr.clear();
  options.warnings.push_back(fmt::format(
      "dtrun: {} is without effect: with the static rendezvous MASTER_ADDR is --master_addr",
      values.get("local-addr").origin));
}

void read_port_range(const OptionValues& values, Options& options) {
  if (!values.has("port-range")) return;
  try {
    options.ports = parse_port_range(values.get("port-range").value);
  } catch (const Error& error) {
    values.reject("port-range", error.summary());
  }
}

void check_node_rank(const OptionValues& values, const Options& options) {
  if (!values.has("node-rank")) return;
  const std::string& origin = values.get("node-rank").origin;
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

// That the nodes can find each other.
void check_endpoint(const OptionValues& values, const Options& options) {
  const bool is_static = options.rendezvous == Rendezvous::kStatic;
  const bool several = options.rounds.max_nodes > 1;
  if (is_static && values.has("rdzv-endpoint") &&
      (values.has("master-addr") || values.has("master-port")))
    throw Error(ErrorCode::kUsage,
                "--rdzv_endpoint and --master_addr, --master_port name the same thing", "",
                "leave one of them out");
  if (options.rendezvous == Rendezvous::kFile && options.head_file.empty())
    throw Error(ErrorCode::kUsage, "store_type=file in --rdzv_conf needs --rdzv_endpoint",
                "the nodes meet through a file", "--rdzv_endpoint=/path/that/all/nodes/share");
  if (several && options.rendezvous == Rendezvous::kC10d && !values.has("rdzv-endpoint"))
    throw Error(ErrorCode::kUsage, "a job of several nodes needs --rdzv_endpoint",
                "the nodes must know where to meet",
                "--rdzv_endpoint=HOST:PORT, with HOST one of the nodes, the same on every node");
  if (several && options.master_port == 0 && options.rendezvous != Rendezvous::kFile)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is for one node",
                            is_static ? "--master_port=0" : "port 0 in --rdzv_endpoint"),
                "", "the other nodes must know the port of node 0: name one");
}

void check_backend(const OptionValues& values, const Options& options) {
  if (options.rounds.elastic() && options.rendezvous == Rendezvous::kStatic)
    throw Error(ErrorCode::kUsage,
                fmt::format("{}={} needs --rdzv_backend=c10d or etcd-v2",
                            values.get("nnodes").origin, values.get("nnodes").value),
                "the static rendezvous has a fixed number of nodes",
                "--rdzv_backend=c10d --rdzv_endpoint=HOST:PORT, the same on every node");
  if (values.has("standalone") && options.rounds.max_nodes > 1)
    throw Error(ErrorCode::kUsage,
                fmt::format("--standalone is for one node, and {}={} names more",
                            values.get("nnodes").origin, values.get("nnodes").value),
                "", "leave one of them out");
}

}  // namespace

void drop_meeting_options(CommandLine& line, Options& options) {
  for (const char* name :
       {"rdzv-backend", "rdzv-endpoint", "master-addr", "master-port", "node-rank"}) {
    const auto given = line.values.find(name);
    if (given == line.values.end()) continue;
    options.tell_without_effect(given->second, "--standalone meets nobody");
    line.values.erase(given);
  }
}

void read_rendezvous_options(const OptionValues& values, Options& options) {
  const RendezvousConf conf = read_rendezvous_conf(values.line());
  options.rendezvous = read_backend(values, conf);
  read_node_count(values, options);
  read_restart_options(values, options.rounds);
  if (options.rendezvous == Rendezvous::kStatic || values.has("node-rank"))
    options.node_rank = values.integer("node-rank", 0, 0, INT_MAX);
  read_endpoint(values, options);
  if (values.has("listener-fd"))
    options.listener_fd = values.integer("listener-fd", 0, STDERR_FILENO + 1, INT_MAX);
  options.run_id = values.text("rdzv-id", "");
  apply(conf, options);
  options.rounds.join_timeout = values.seconds("join-timeout", options.rounds.join_timeout);
  // Who says how long the others may take means the one that hosts, too.
  if (conf.join_timeout || values.has("join-timeout"))
    options.head_patience = options.rounds.join_timeout;
  read_local_addr(values, options);
  read_port_range(values, options);
}

void check_rendezvous_options(const OptionValues& values, const Options& options) {
  check_backend(values, options);
  check_endpoint(values, options);
  check_node_rank(values, options);
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
