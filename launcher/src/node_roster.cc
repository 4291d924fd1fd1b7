#include "node_roster.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace dtrun::launcher {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The run of digits at `at`, without leading zeros; moves `at` behind it.
std::string take_number(const std::string& text, std::size_t& at) {
  while (at + 1 < text.size() && text[at] == '0' && is_digit(text[at + 1])) ++at;
  const std::size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

Objection contradiction(std::string text) {
  return {Objection::Kind::kContradiction, std::move(text)};
}

}  // namespace

bool naturally_before(const std::string& left, const std::string& right) {
  std::size_t i = 0, j = 0;
  while (i < left.size() && j < right.size()) {
    if (is_digit(left[i]) && is_digit(right[j])) {
      const std::string a = take_number(left, i), b = take_number(right, j);
      if (a.size() != b.size()) return a.size() < b.size();
      if (a != b) return a < b;
    } else if (left[i] != right[j]) {
      return left[i] < right[j];
    } else {
      ++i;
      ++j;
    }
  }
  return left.size() - i < right.size() - j;
}

Objection NodeRoster::objection_to(const Hello& hello) const {
  const Hello& head = this->head();
  if (hello.run_id != head.run_id)
    return {Objection::Kind::kStranger,
            fmt::format("it belongs to job '{}', and this is job '{}' (--rdzv_id)", hello.run_id,
                        head.run_id)};
  if (phase_ == Phase::kStarted)
    return {Objection::Kind::kStranger,
            fmt::format("job '{}' is full: it has begun already with its {} nodes ({})",
                        head.run_id, head.node_count, hosts())};
  if (phase_ == Phase::kEnding)
    return {Objection::Kind::kStranger,
            fmt::format("job '{}' is ending before it has begun: {}", head.run_id, why_ending_)};
  if (hello.node_count != head.node_count)
    return contradiction(fmt::format("it was started with --nnodes={}, node 0 with --nnodes={}",
                                     hello.node_count, head.node_count));
  if (hello.local_ranks < 1) return contradiction("it brings no rank");
  if (hello.local_ranks > kMostLocalRanks)
    return contradiction(
        fmt::format("it brings {} ranks, and {} are allowed", hello.local_ranks, kMostLocalRanks));
  return check_node_rank(hello);
}

Objection NodeRoster::check_node_rank(const Hello& hello) const {
  const Hello& head = this->head();
  if (hello.node_rank == kNoNodeRank && head.node_rank == kNoNodeRank) return {};
  if (hello.node_rank == kNoNodeRank)
    return contradiction(fmt::format(
        "it was started without --node_rank, node 0 with --node_rank={}: give it on all nodes, or "
        "on none",
        head.node_rank));
  if (head.node_rank == kNoNodeRank)
    return contradiction(fmt::format(
        "it was started with --node_rank={}, node 0 without: give it on all nodes, or on none",
        hello.node_rank));
  if (hello.node_rank < 0 || hello.node_rank >= head.node_count)
    return contradiction(
        fmt::format("there is no node {} in a job of {}", hello.node_rank, head.node_count));
  for (const auto& [id, node] : nodes_)
    if (node.node_rank == hello.node_rank)
      return contradiction(
          fmt::format("--node_rank={} is taken already, by {}", hello.node_rank, node.host));
  return {};
}

std::map<int, NodePlace> NodeRoster::places() const {
  std::vector<int> order;
  for (const auto& [id, node] : nodes_) order.push_back(id);
  const bool given = head().node_rank != kNoNodeRank;
  std::stable_sort(order.begin() + 1, order.end(), [&](int a, int b) {
    const Hello &left = nodes_.at(a), &right = nodes_.at(b);
    return given ? left.node_rank < right.node_rank : naturally_before(left.host, right.host);
  });
  std::map<int, NodePlace> places;
  int node_rank = 0, base_rank = 0;
  for (const int id : order) {
    places[id] = {node_rank++, base_rank};
    base_rank += nodes_.at(id).local_ranks;
  }
  return places;
}

int NodeRoster::world_size() const {
  int sum = 0;
  for (const auto& [id, node] : nodes_) sum += node.local_ranks;
  return sum;
}

std::string NodeRoster::hosts() const {
  std::string result;
  for (const auto& [id, node] : nodes_) result += (result.empty() ? "" : ", ") + node.host;
  return result;
}

std::string NodeRoster::who_is_here(const std::string& elapsed) const {
  const Hello& head = this->head();
  const std::string text =
      fmt::format("{} of {} nodes have joined in {}", nodes_.size(), head.node_count, elapsed);
  if (head.node_rank == kNoNodeRank) return fmt::format("{} ({})", text, hosts());
  std::vector<bool> here(static_cast<std::size_t>(head.node_count));
  for (const auto& [id, node] : nodes_) here[static_cast<std::size_t>(node.node_rank)] = true;
  std::string missing;
  for (std::size_t i = 0; i < here.size(); ++i)
    if (!here[i]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i);
  return fmt::format("{}; missing: node {}", text, missing);
}

}  // namespace dtrun::launcher
