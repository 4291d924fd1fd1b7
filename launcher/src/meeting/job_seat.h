// JobSeat: this node's seat in the job. It finds the head (MeetingPoint), takes part in the rounds
// (Membership), hosts the head where the nodes meet at this one (Endpoint), and serves a round's
// store where the head asks for it (RoundStore). The agent hears only when ranks are to start and
// to stop and that the job is over here, and tells how they have ended. On the agent's EventLoop,
// which it never blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/rendezvous/round_member.h"
#include "meeting/start_sign.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

/// What the agent is to do, or may want to know. Each may call the seat back.
struct JobSeatCallbacks {
  /// A round begins. Until its end is told, by gone() or stuck(), no other does.
  std::function<void(const rendezvous::rounds::Start&)> on_start;
  /// The ranks must end; answered by gone() or stuck(), unless that has been told already.
  std::function<void(const rendezvous::rounds::StopWorkers&)> on_stop;
  /// No round follows here. Called once; nothing is called after it but on_worker_end and what
  /// leave() was given.
  std::function<void(const rendezvous::rounds::Finish&)> on_finish;
  /// The new lease().
  std::function<void(rendezvous::rounds::Moment until)> on_lease;
  /// Where the head is here: a rank of any node has not ended well.
  std::function<void(const rendezvous::rounds::WorkerEnd&)> on_worker_end;
  /// Where the round's store is here: it has another client.
  base::EventLoop::Callback on_store_client;
};

class JobSeat {
 public:
  /// @param loop, plan, sign must live longer
  /// @param sign before which a head that is here opens no round
  JobSeat(base::EventLoop& loop, const LaunchPlan& plan, StartSign& sign,
          JobSeatCallbacks callbacks);
  ~JobSeat();
  JobSeat(const JobSeat&) = delete;
  JobSeat& operator=(const JobSeat&) = delete;

  /// Begins to look for the head, by a thread of its own; so after the guard is forked. That none
  /// can be found is thrown out of the loop's run().
  void begin();

  // What has happened here, in the round that was started last:
  /// The first failure among its ranks. The rest of them is being ended.
  void failed(const rendezvous::rounds::JobFailure& failure);
  /// None of them is left. @param ends of those that did not end well
  void gone(rendezvous::rounds::WorkersGone::How how,
            std::vector<rendezvous::rounds::WorkerEnd> ends = {});
  /// Some survive SIGKILL, or this node is ill: it can be in no other round.
  void stuck(const rendezvous::rounds::JobFailure& failure);
  /// The operator ends the job. Where no head has been found yet on_finish is called at once.
  void stop(const rendezvous::rounds::OperatorStop& stop);

  enum class End { kWithJob, kByOperator };
  /// Call it once, after on_finish. @param done called when no other agent needs what is hosted
  /// here any more; maybe at once
  void leave(End end, base::EventLoop::Callback done);

  /// Until when this node's ranks may live without another word of this process; max(): for ever.
  rendezvous::rounds::Moment lease();
  /// How long a node may be silent before the head gives it up; once a head has taken this one.
  rendezvous::rounds::Moment silence_window() const;
  /// Whether no other agent goes on without this one.
  bool holds_up_all() const;
  /// For the operator, while there are no ranks: for whom the job waits; else "".
  std::string waiting_text() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::launcher
