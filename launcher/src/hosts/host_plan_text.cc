#include "hosts/host_plan_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>

#include "hosts/host_place.h"

namespace dtrun::launcher {
namespace {

namespace json = boost::json;

std::string joined_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> shell_command(const HostPlan& plan) {
  std::vector<std::string> words = plan.order.remote_shell;
  words.insert(words.end(), {"HOST", plan.order.remote_dtrun, "--remote-agent"});
  return words;
}

json::array array_of_words(const std::vector<std::string>& words) {
  json::array array;
  for (const std::string& word : words) array.emplace_back(word);
  return array;
}

std::string text_of_ports(const HostPlan& plan) {
  return plan.head_ports == "0" ? "of the first host's choice" : plan.head_ports;
}

}  // namespace

json::object describe_host_plan(const HostPlan& plan) {
  const HostOrder& order = plan.order;
  json::array nodes, names;
  for (const HostNode& node : order.nodes)
    nodes.push_back(json::object{{"node_rank", node.node_rank},
                                 {"host", node.host},
                                 {"ranks", node.ranks},
                                 {"this_machine", node.place == HostPlace::kThisMachine}});
  for (const auto& [name, value] : order.environment) names.emplace_back(name);
  return {{"nodes", std::move(nodes)},
          {"folder", order.folder},
          {"master_addr", order.master_addr},
          {"ports", plan.head_ports == "0" ? json::value() : json::value(plan.head_ports)},
          {"remote_command", array_of_words(shell_command(plan))},
          {"fanout", order.fanout},
          {"options", array_of_words(order.options)},
          {"program", array_of_words(order.program)},
          {"environment", std::move(names)}};
}

std::string host_plan_text(const HostPlan& plan) {
  const HostOrder& order = plan.order;
  std::size_t width = 4;
  for (const HostNode& node : order.nodes) width = std::max(width, node.host.size());
  std::string text =
      fmt::format("Nothing is started: --dry-run.\n\nnode  {:{}}  ranks\n", "host", width);
  for (const HostNode& node : order.nodes)
    text += fmt::format("{:4}  {:{}}  {}{}\n", node.node_rank, node.host, width, node.ranks,
                        node.place == HostPlace::kThisMachine ? "  (this machine)" : "");
  std::vector<std::string> names;
  for (const auto& [name, value] : order.environment) names.push_back(name);
  return text + fmt::format(
                    "\nfolder       {}\nmeeting      {}, port {}\nother hosts  {}\n"
                    "environment  {}\noptions      {}\nprogram      {}\n",
                    order.folder, order.master_addr, text_of_ports(plan),
                    joined_words(shell_command(plan)), joined_words(names),
                    joined_words(order.options), joined_words(order.program));
}

}  // namespace dtrun::launcher
