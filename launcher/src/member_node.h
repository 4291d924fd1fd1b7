// MemberNode: any node but node 0 among the agents: connects to the head, learns its place in the
// world, and waits at the end until nobody needs it.
#pragma once

#include <memory>

#include "node_connection.h"
#include "nodes.h"

namespace dtrun::launcher {

class MemberNode : public Nodes {
 public:
  MemberNode(base::EventLoop& loop, const LaunchPlan& plan, NodesCallbacks callbacks);

  /// Blocks while the head cannot be reached yet.
  void join() override;
  void tell_failure(const JobFailure& failure) override;
  void tell_done() override;

 private:
  std::string head_name() const;
  void on_message(const NodeMessage& message);
  void on_lost(const std::string& why);

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  NodesCallbacks callbacks_;
  base::Timer timer_;
  std::unique_ptr<NodeConnection> head_;
  bool started_ = false;
  bool failed_ = false;
  bool gone_ = false;  // the head
  bool done_ = false;
};

}  // namespace dtrun::launcher
