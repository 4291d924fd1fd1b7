// Membership: an agent's side of its connection to the head: connects (again and again, with
// jittered backoff), proves itself, feeds what the head says to the agent's state machine
// (round_member.h) and has the agent do what that decides. Belongs to its loop's thread, which it
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
  /// As lease(), whenever it has changed; may be empty.
  std::function<void(rounds::Moment)> on_lease = {};
};

class Membership {
 public:
  Membership(base::EventLoop& loop, rounds::MemberSettings settings, Proof proof,
             MembershipCallbacks callbacks);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Once.
  void begin(HeadPlace place);
  /// What has happened here: StoreOpened, StoreFailed, WorkersFailed, WorkersGone, OperatorStop.
  void tell(const rounds::MemberEvent& event);
  /// The head is elsewhere from now on: at settings.head_name, for messages.
  void move(HeadPlace place, const std::string& head_name);

  const rounds::MemberState& state() const;
  /// Until when no other agent can begin a round without this one, whatever happens to this process
  /// from now on: until then its workers may live. Counted from its last word that has certainly
  /// come to the head's machine, and a tenth of the silence window shorter than that, for the
  /// workers' deaths. Moment::max(): no other will.
  rounds::Moment lease();
  /// The address of this machine from which the head was reached, numeric; empty: it is in this
  /// process, or there is no connection.
  std::string reached_from() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::rendezvous
