// RoundStore: the store of a round's ranks, when the head asks this node for it. Where this agent
// hosts the endpoint and the job's nodes are fixed, it is the endpoint's, emptied. Else it has a
// port of its own, fresh for each round, so that nothing of an earlier round can reach it; or it is
// a port at which rank 0 serves a store. On the agent's EventLoop.
#pragma once

#include <memory>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/rendezvous/round_member.h"
#include "dtrun/rendezvous/tcp_store_server.h"
#include "meeting/endpoint.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

struct HeadReach {
  std::string host;  ///< the head's, as it is called
  std::string from;  ///< the address of this machine, numeric; empty: it is in this process
  std::string local_address;  ///< of --local_addr, numeric; empty: it is not given
};

class RoundStore {
 public:
  /// @param on_client called for each client of a store at a port of its own
  RoundStore(base::EventLoop& loop, const LaunchPlan& plan, base::EventLoop::Callback on_client)
      : loop_(loop), plan_(plan), on_client_(std::move(on_client)) {}

  /// Opens the round's store, and closes that of an earlier round.
  /// @param endpoint nullptr: another agent hosts it
  /// @param reach how the head is reached from here
  /// @throws Error kSystem, kConnection
  rendezvous::rounds::StoreOpened open(int round, Endpoint* endpoint, const HeadReach& reach);

 private:
  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  base::EventLoop::Callback on_client_;
  std::unique_ptr<rendezvous::TcpStoreServer> server_;
};

}  // namespace dtrun::launcher
