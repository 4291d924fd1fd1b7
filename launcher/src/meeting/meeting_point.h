// MeetingPoint: how an agent finds the head of its job, the agent that gathers the others into
// rounds; it may turn out to be this one. One interface over the ways there are:
//
//   static       node 0, by --node_rank, at --master_addr
//   c10d         on the machine that --rdzv_endpoint names (host_election.h)
//   c10d, file   whoever claims the file of --rdzv_endpoint first (head_file.h)
//   etcd-v2      whoever etcd elects
//
// The search never blocks the loop: names are looked up, files opened on a thread of their own. So
// it must begin after the guard is forked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/round_messages.h"
#include "launch/launch_plan.h"

namespace dtrun::launcher {

struct Head {
  base::UniqueFd listener;             ///< valid: this agent is the head, and listens here
  std::vector<std::string> addresses;  ///< of the head, numeric, in the order to try
  std::uint16_t port = 0;
  std::string host;    ///< as messages call it: of the endpoint, else addresses[0]
  std::string reason;  ///< why it is this agent, or is not; empty where --node_rank has said so
  /// Of --local_addr, numeric: where stores of this node listen; empty: it is not given.
  std::string local_address;
  /// How long it makes sense that nobody listens there: the head may start later than this agent.
  std::chrono::nanoseconds patience{};

  /// Where another one may follow: the last round of those before.
  std::optional<int> last_round;

  bool is_here() const { return listener.valid(); }
  /// "node1:29400"
  std::string name() const;
};

class MeetingPoint {
 public:
  using Found = std::function<void(Head)>;

  /// What this agent has published as the head is taken back.
  virtual ~MeetingPoint() = default;
  using Lost = std::function<void(const std::string& why)>;
  /// Calls back on the loop, later, once; with etcd, again whenever another is elected. What goes
  /// wrong is thrown out of the loop's run(). Again: the head that was found is gone, or no dtrun
  /// of this job was there.
  virtual void find(Found found) = 0;

  // For the head, where others may follow it:
  /// Called when this agent must not be the head any more.
  virtual void on_lost(Lost lost) { (void)lost; }
  /// This round is about to open. Once `done` is called, those of the next head have higher
  /// numbers; where this agent leads no more it never is.
  virtual void record_round(int round, base::EventLoop::Callback done) {
    (void)round;
    done();
  }
  using Verdict = rendezvous::rounds::Close;
  /// The head has judged, and has told nobody yet. Once `done` is called it may: no other head can
  /// begin a round, unless there is a warning that this could not be written. Where this agent
  /// leads no more it never is.
  virtual void record_verdict(const Verdict& verdict, base::EventLoop::Callback done) {
    (void)verdict;
    done();
  }
  /// The job is over, and all are told: nobody can join it any more once `done` is called.
  virtual void close(const Verdict& verdict, base::EventLoop::Callback done) {
    (void)verdict;
    done();
  }

  // For all, where another head may follow:
  using Over = std::function<void(const Verdict&)>;
  /// Called when a head's verdict is on record. The head tells it, if it lives so long.
  virtual void on_over(Over over) { (void)over; }
};

/// @param loop, plan must live longer
std::unique_ptr<MeetingPoint> make_meeting_point(base::EventLoop& loop, const LaunchPlan& plan);

/// One line for the operator: who hosts, and why. On standard error where there is more than one
/// node.
std::string who_hosts(const Head& head);

}  // namespace dtrun::launcher
