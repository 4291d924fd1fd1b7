// Membership: an agent's side of its connection to the head. It connects (again and again, with
// jittered backoff), proves itself, feeds the head's messages to the agent's state machine
// (round_member.h) and passes its actions to the agent. Belongs to its loop's thread, which it
// never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/proof.h"
#include "dtrun/rendezvous/round_member.h"

namespace dtrun::rendezvous {

/// Where the head is.
struct HeadPlace {
  std::string host;  ///< a name, or a numeric address
  std::uint16_t port = 0;
  /// HeadService::own_agent() of a head in this process; host and port are for the time after it.
  base::UniqueFd own{};
};

/// What the agent is to do. Each may call tell(); on_finish() may destroy the membership.
struct MembershipCallbacks {
  std::function<void(const rounds::OpenStore&)> on_open_store;
  std::function<void(const rounds::StartWorkers&)> on_start_workers;
  std::function<void(const rounds::StopWorkers&)> on_stop_workers;
  std::function<void(const rounds::Finish&)> on_finish;
  std::function<void(const rounds::MemberNote&)> on_note;
  /// The new lease(), whenever it has changed; may be empty.
  std::function<void(rounds::Moment)> on_lease = {};
};

class Membership {
 public:
  Membership(base::EventLoop& loop, rounds::MemberSettings settings, Proof proof,
             MembershipCallbacks callbacks);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Called once.
  void begin(HeadPlace place);
  /// What has happened here: StoreOpened, StoreFailed, WorkersFailed, WorkersGone, OperatorStop.
  void tell(const rounds::MemberEvent& event);
  /// The head is elsewhere from now on. @param head_name for messages, as settings.head_name
  void move(HeadPlace place, const std::string& head_name);

  const rounds::MemberState& state() const;
  /// Until when this agent's workers may live: before it no other agent can begin a round without
  /// this one, whatever happens to this process from now on. It is the silence window after the
  /// last message that has certainly reached the head's machine, less a tenth for the workers'
  /// deaths. Moment::max(): no other will begin one.
  rounds::Moment lease();
  /// The address of this machine from which the head was reached, numeric; empty: it is in this
  /// process, or there is no connection.
  std::string reached_from() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::rendezvous
