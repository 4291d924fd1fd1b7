// Endpoint: the listening socket of the agent that hosts the rendezvous. At it the other agents
// reach the head, and in a job of fixed size the ranks reach their store. On the agent's EventLoop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/head_service.h"
#include "dtrun/rendezvous/tcp_store_server.h"
#include "meeting/meeting_point.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

/// Sets the token that the ranks' store asks its clients for.
void demand_token(const LaunchPlan& plan, rendezvous::TcpStoreServerOptions& store);

class Endpoint {
 public:
  /// @param on_end called when no agent needs the head any more
  /// @param on_worker_end a rank of any node has not ended well
  /// @param on_store_client called for each client of the store at the endpoint
  /// @param before_round called with each round's number; the round opens when `go` is
  /// @param before_close called with the verdict; the agents are told it when `go` is called
  Endpoint(base::EventLoop& loop, const LaunchPlan& plan, Head head,
           base::EventLoop::Callback on_end,
           std::function<void(int round, base::EventLoop::Callback go)> before_round,
           std::function<void(const rendezvous::rounds::Close&, base::EventLoop::Callback go)>
               before_close,
           std::function<void(const rendezvous::rounds::WorkerEnd&)> on_worker_end,
           base::EventLoop::Callback on_store_client);

  /// This agent's own connection to the head. Call it once.
  base::UniqueFd own_agent() { return head_->own_agent(); }
  bool ended() const { return ended_; }
  /// Another agent may become the head. ended() follows, if it has not ended already.
  void step_down();
  /// Whether the job is over; some agents may not have heard it yet.
  bool job_is_over() const {
    return head_->state().phase == rendezvous::rounds::HeadPhase::kClosed && !stepped_down_;
  }
  /// The verdict, once job_is_over().
  const rendezvous::rounds::Close& verdict() const { return head_->state().verdict; }
  /// Whether it ended with the job, not before it.
  bool closed() const { return ended_ && !stepped_down_; }

  /// The nodes for which the job waits to begin; empty: it waits for none.
  std::string waiting_text() const;

  std::uint16_t port() const { return server_->port(); }
  /// Numeric; all addresses where the endpoint's name means the loopback here.
  const std::string& listening_at() const { return listening_at_; }
  /// An empty store at the endpoint itself, for the ranks of a round.
  void open_store();

 private:
  std::string listening_at_;
  std::unique_ptr<rendezvous::HeadService> head_;
  std::unique_ptr<rendezvous::TcpStoreServer> server_;
  bool store_used_ = false;
  bool stepped_down_ = false;
  bool ended_ = false;
};

}  // namespace dtrun::launcher
