// MemberNode: any node but node 0 among the agents: connects to the head, learns its place in the
// world, and waits at the end until nobody needs it.
#pragma once

#include <memory>
#include <string>

#include "dtrun/base/error.h"
#include "node_connection.h"
#include "nodes.h"

namespace dtrun::launcher {

class MemberNode : public Nodes {
 public:
  MemberNode(base::EventLoop& loop, const LaunchPlan& plan, Head where, NodesCallbacks callbacks);

  void join() override;
  void tell_failure(const JobFailure& failure) override;
  void tell_done() override;

 private:
  std::string head_name() const;
  void connect();
  void say_hello(base::UniqueFd socket);
  base::Error unreachable(const std::string& cause) const;
  base::Error no_dtrun_there(const std::string& why) const;
  base::Error not_started() const;
  base::Error refused(const std::string& text) const;
  StartOrder order_of(const Welcome& welcome) const;
  void on_message(const NodeMessage& message);
  void on_lost(const std::string& why);

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  Head where_;
  NodesCallbacks callbacks_;
  base::Timer timer_;
  std::unique_ptr<NodeConnection> head_;
  base::Deadline::Clock::time_point start_;
  base::Deadline join_limit_ = base::Deadline::never();
  base::Deadline reach_limit_ = base::Deadline::never();
  std::size_t attempts_ = 0;
  bool answered_ = false;  // whoever listens there is a dtrun
  bool started_ = false;
  bool failed_ = false;
  bool gone_ = false;  // the head
  bool done_ = false;
};

}  // namespace dtrun::launcher
