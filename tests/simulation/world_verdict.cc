// What an elected head does with its verdict before anybody hears it: it is written to etcd, which
// takes time and may fail. What it assumes of production (HeadSessions, ElectedMeetingPoint): it is
// written only by who leads; who does not reach etcd in time tells it nevertheless, and goes on
// trying; whose answer was lost asks again; and everybody hears what is written there.
#include <algorithm>

#include "world.h"

namespace dtrun::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

void World::judge(int index, const rounds::Send& send) {
  HostedHead& head = *nodes_[static_cast<std::size_t>(index)].head;
  if (head.verdict == HostedHead::Verdict::kMayBeTold) return deliver(head, send);
  head.untold.push_back(send);
  if (head.verdict == HostedHead::Verdict::kIsKept) return;
  head.verdict = HostedHead::Verdict::kIsKept;
  head.is_writing = true;
  head.write_until = now_ + std::min<Moment>(seconds(5), scenario_.settings.close_timeout / 2);
  arrange(now_ + random_.between(milliseconds(1), milliseconds(200)), Happening::kVerdictWrite,
          index, head.key);
}

void World::write_verdict(int index, std::int64_t head_key) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.head || node.head->key != head_key) return;
  HostedHead& head = *node.head;
  if (left_by_ == head.key) return tell_verdict(index);  // its own, of which it did not know
  if (leader_ != index) {
    head.is_writing = false;
    return head.ended ? end_agent_if_over(node, index) : step_down_head(index);
  }
  const Moment later = now_ + random_.between(milliseconds(100), milliseconds(1500));
  if (reaches_etcd(node) && lease_cut_until_ <= now_) {
    leave_verdict(head);
    if (random_.chance(900)) return tell_verdict(index);
  } else if (now_ >= head.write_until && head.verdict == HostedHead::Verdict::kIsKept) {
    trace_.line(now_, "node {}: tells a verdict that is not written", index);
    referee_.tells_unwritten();
    tell_verdict(index);
    head.is_writing = true;
  }
  const bool gives_up = head.ended && now_ >= head.write_until + scenario_.settings.close_timeout;
  if (!gives_up) return arrange(later, Happening::kVerdictWrite, index, head_key);
  head.is_writing = false;
  end_agent_if_over(node, index);
}

void World::leave_verdict(const HostedHead& head) {
  left_ = head.state.verdict;
  left_by_ = head.key;
  referee_.verdict_left(*left_);
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].running)
      arrange(now_ + random_.between(milliseconds(1), milliseconds(500)), Happening::kVerdictNews,
              static_cast<int>(i));
}

void World::tell_verdict(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  HostedHead& head = *node.head;
  head.is_writing = false;
  head.verdict = HostedHead::Verdict::kMayBeTold;
  for (const rounds::Send& send : std::exchange(head.untold, {})) deliver(head, send);
  end_agent_if_over(node, index);
}

void World::verdict_news(int index) {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  const Moment reached = std::max(node.cut_in, node.cut_out);
  if (reached > now_) return arrange(reached, Happening::kVerdictNews, index);
  trace_.line(now_, "node {}: reads the verdict", index);
  member_event(index, rounds::VerdictLeft{*left_});
}

}  // namespace dtrun::simulation
