// HeadService: the head of a job over real sockets. It adopts the agents' connections, feeds their
// messages to the head's state machine (round_head.h) and carries out its actions. Owned by the
// agent that hosts; lives on its loop's thread. One connection per agent, each non-blocking with
// bounded buffers: an agent that sends nothing, reads nothing or talks nonsense holds up nobody.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/proof.h"
#include "dtrun/rendezvous/round_head.h"

namespace dtrun::rendezvous {

struct HeadServiceOptions {
  /// What all agents must prove to the head, and the head to them.
  Proof proof;
  /// The endpoint's host as the user gave it: the address of a store on this machine.
  std::string endpoint_host;
  /// The numeric address at which the endpoint's socket listens; see master_address.h.
  std::string listening_at;
  /// A connection that has not become an accepted agent's after this time is closed.
  base::Deadline::Duration newcomer_time = std::chrono::seconds(10);
  /// The most such connections; beyond it the oldest is closed.
  std::size_t max_newcomers = 4096;
  /// How long the other side has to close a connection that this side is done with, once all is
  /// sent.
  base::Deadline::Duration farewell_time = std::chrono::seconds(5);
};

struct HeadServiceCallbacks {
  std::function<void(const rounds::Note&)> on_note = {};
  /// No agent needs the head any more, and all have their last message. The last call; it may
  /// destroy the service.
  std::function<void()> on_end = {};
  /// If given: no agent hears of a round before `go` is called, on the loop: at once, later, or
  /// never.
  std::function<void(int round, base::EventLoop::Callback go)> before_round = {};
  /// If given: no agent gets Close before `go` is called, on the loop: at once, later, or never.
  /// Called once.
  std::function<void(const rounds::Close& verdict, base::EventLoop::Callback go)> before_close = {};
  /// A worker of any node has not ended well.
  std::function<void(const rounds::WorkerEnd&)> on_worker_end = {};
};

class HeadService {
 public:
  /// @param head make_head(), with further fields set by the caller
  HeadService(base::EventLoop& loop, rounds::HeadState head, HeadServiceOptions options,
              HeadServiceCallbacks callbacks);
  ~HeadService();
  HeadService(const HeadService&) = delete;
  HeadService& operator=(const HeadService&) = delete;

  /// A connection whose first bytes were read already (TcpStoreServerOptions::on_agent).
  void adopt(base::UniqueFd connection, const std::string& first_bytes);
  /// For a process without descriptors left: closes an adopted connection that is done with, or
  /// that is no accepted agent's and has been here since `moment` or longer. False: there is none.
  bool part_with_one_since(base::Deadline::Clock::time_point moment);
  /// The hosting agent's own end of its connection to this head, for Membership. Call it once.
  base::UniqueFd own_agent();
  /// Another agent is the head from now on. on_end() follows.
  void step_down();

  const rounds::HeadState& state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::rendezvous
