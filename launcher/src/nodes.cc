#include "nodes.h"

#include "head_node.h"
#include "member_node.h"

namespace dtrun::launcher {

std::unique_ptr<Nodes> make_nodes(base::EventLoop& loop, const LaunchPlan& plan,
                                  base::UniqueFd listener, NodesCallbacks callbacks) {
  if (plan.options.node_rank == 0)
    return std::make_unique<HeadNode>(loop, plan, std::move(listener), std::move(callbacks));
  return std::make_unique<MemberNode>(loop, plan, std::move(callbacks));
}

}  // namespace dtrun::launcher
