#include "nodes.h"

#include "head_node.h"
#include "member_node.h"

namespace dtrun::launcher {

std::unique_ptr<Nodes> make_nodes(base::EventLoop& loop, const LaunchPlan& plan,
                                  MeetingPoint meeting_point, NodesCallbacks callbacks) {
  if (meeting_point.listener)
    return std::make_unique<HeadNode>(loop, plan, std::move(meeting_point.listener),
                                      std::move(callbacks));
  return std::make_unique<MemberNode>(loop, plan, std::move(meeting_point.reason),
                                      std::move(callbacks));
}

}  // namespace dtrun::launcher
