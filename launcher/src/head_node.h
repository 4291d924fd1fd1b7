// HeadNode: node 0 among the agents. Serves the ranks' store, gathers the other agents on the same
// port, gives every node its place in the world, passes a failure on to all, and stays until all
// are done, because their ranks need the store until then.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/tcp_store_server.h"
#include "node_connection.h"
#include "node_roster.h"
#include "nodes.h"

namespace dtrun::launcher {

class HeadNode : public Nodes {
 public:
  HeadNode(base::EventLoop& loop, const LaunchPlan& plan, base::UniqueFd listener,
           NodesCallbacks callbacks);

  void join() override;
  void tell_failure(const JobFailure& failure) override;
  void tell_done() override;

 private:
  struct Member {
    std::unique_ptr<NodeConnection> connection;
    std::string reached_at;      // the address of this machine that it came in by
    std::optional<Hello> hello;  // none: it has not said yet who it is
    bool done = false;
  };

  rendezvous::TcpStoreServerOptions store_options();
  void accept(base::UniqueFd socket, std::string bytes);
  void on_message(int id, const NodeMessage& message);
  void on_hello(int id, const Hello& hello);
  void on_lost(int id, const std::string& why);
  void send_away(int id, const Hello& hello, const Objection& objection);
  void start_job();
  StartOrder order_for(const NodePlace& place) const;
  base::Error joined_too_few() const;
  void fail_joining(const base::Error& error);
  void set_failed(const std::string& why);
  bool all_are_told() const;
  void pass_on(const JobFailure& failure, int except);
  void release_if_all_are_done();
  void release();

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  NodesCallbacks callbacks_;
  base::Timer timer_;
  std::string listening_at_;
  NodeRoster roster_;
  std::map<int, NodePlace> places_;      // once the job has started
  std::optional<base::Error> farewell_;  // joining has failed: thrown once the others know
  std::map<int, Member> members_;        // by order of arrival
  rendezvous::TcpStoreServer server_;
  int next_id_ = 0;
  int told_ = 0;  // nodes that know that joining has failed
  bool started_ = false;
  bool failed_ = false;
  bool done_ = false;
};

}  // namespace dtrun::launcher
