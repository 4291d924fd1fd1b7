#include "nodes.h"

#include "head_node.h"
#include "member_node.h"

namespace dtrun::launcher {

std::unique_ptr<Nodes> make_nodes(base::EventLoop& loop, const LaunchPlan& plan, Head head,
                                  NodesCallbacks callbacks) {
  if (head.listener)
    return std::make_unique<HeadNode>(loop, plan, std::move(head.listener), std::move(callbacks));
  return std::make_unique<MemberNode>(loop, plan, std::move(head), std::move(callbacks));
}

}  // namespace dtrun::launcher
