// Nodes: this agent's place among the agents of the job. HeadNode (node 0; also of a job of one
// node) serves the ranks' store and holds a connection to every other agent; MemberNode holds one
// to the head. Both run on the agent's EventLoop and speak node_protocol.h.
#pragma once

#include <functional>
#include <memory>

#include "dtrun/base/event_loop.h"
#include "guard_link.h"
#include "launch_plan.h"
#include "meeting_point.h"
#include "node_protocol.h"

namespace dtrun::launcher {

struct NodesCallbacks {
  /// All nodes are in: this node's ranks may start.
  std::function<void(const StartOrder&)> on_ready;
  /// The job has failed elsewhere: end this node's ranks.
  std::function<void(const JobFailure&)> on_failure;
  /// Everybody is done, or nobody can be asked any more: this agent may go.
  std::function<void()> on_release;
};

class Nodes {
 public:
  virtual ~Nodes() = default;
  /// @throws Error (kConnection, kTimeout, kUsage) from EventLoop::run(), naming who is missing
  virtual void join() = 0;
  /// The job has failed here: tell the others.
  virtual void tell_failure(const JobFailure& failure) = 0;
  /// This node's ranks have ended.
  virtual void tell_done() = 0;
};

/// Node 0's where the meeting point is this agent's own: it serves the ranks' store there, too.
std::unique_ptr<Nodes> make_nodes(base::EventLoop& loop, const LaunchPlan& plan, Head head,
                                  NodesCallbacks callbacks);

}  // namespace dtrun::launcher
