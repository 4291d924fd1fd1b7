// Who is the head where it is elected: the holder of a lease in etcd, which this stands for. What
// it assumes of production: the holder counts its lease from before the refresh, on its own clock,
// and steps down when a third of it is left; whoever was suspended looks at its lease first.
#include <algorithm>

#include "world.h"

namespace dtrun::simulation {

using std::chrono::milliseconds;

bool World::reaches_etcd(const Node& node) const {
  return node.running && node.powered && node.pause == Pause::kNone && node.cut_out <= now_ &&
         node.cut_in <= now_;
}

void World::look_at_lease() {
  if (left_ && !leader_) return;
  if (leader_) {
    Node& leader = nodes_[static_cast<std::size_t>(*leader_)];
    if (leader.running && leader.head && reaches_etcd(leader) && lease_cut_until_ <= now_) {
      leader.lease_refreshed = now_;
      lease_expires_ = now_ + scenario_.lease;
    } else if (leader.running && leader.pause == Pause::kNone) {
      step_down_if_late(*leader_);
    }
    if (leader_ && now_ >= lease_expires_) leader_.reset();
  }
  if (!leader_ && !left_) elect();
  if (!all_over()) arrange(now_ + scenario_.lease / 6, Happening::kLease, -1);
}

void World::elect() {
  std::vector<int> candidates;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (reaches_etcd(nodes_[i]) && !nodes_[i].finished && !nodes_[i].head)
      candidates.push_back(static_cast<int>(i));
  if (candidates.empty()) return;
  const auto count = static_cast<std::int64_t>(candidates.size());
  const int index = candidates[static_cast<std::size_t>(random_.below(count))];
  Node& node = nodes_[static_cast<std::size_t>(index)];
  leader_ = index;
  node.lease_refreshed = now_;
  lease_expires_ = now_ + scenario_.lease;
  open_head(index);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& each = nodes_[i];
    const Moment at = std::max({now_, each.cut_in, each.cut_out}) +
                      random_.between(milliseconds(1), milliseconds(500));
    if (each.running) arrange(at, Happening::kHeadNews, static_cast<int>(i));
  }
}

void World::step_down_if_late(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (scenario_.meeting != Meeting::kElected || !node.head || node.head->ended) return;
  if (now_ - node.lease_refreshed >= scenario_.lease * 2 / 3) step_down_head(index);
}

void World::step_down_head(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  trace_.line(now_, "node {}: steps down", index);
  rounds::step_down(node.head->state);
  const auto connections = node.head->connections;
  for (const auto& [id, connection] : connections)
    close_head_end(connection, EndOfStream::Kind::kClosed);
  node.head.reset();
  if (leader_ == index) leader_.reset();
  end_agent_if_over(node, index);
}

void World::head_news(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!leader_) return;
  if (node.cut_in > now_ || node.cut_out > now_)
    return arrange(std::max(node.cut_in, node.cut_out), Happening::kHeadNews, index);
  if (node.known_head == leader_ && node.connection &&
      connections_[*node.connection].head_life == nodes_[static_cast<std::size_t>(*leader_)].life)
    return;
  node.known_head = leader_;
  member_event(index, rounds::HeadMoved{"node " + std::to_string(*leader_)});
}

}  // namespace dtrun::simulation
