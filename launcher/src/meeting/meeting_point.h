// MeetingPoint: how an agent finds the head of its job, the agent that gathers the others into
// rounds; the head may be this agent. One interface over four ways:
//
//   static       node 0, by --node_rank, at --master_addr
//   c10d         on the machine that --rdzv_endpoint names (host_election.h)
//   c10d, file   the agent that claims the file of --rdzv_endpoint first (head_file.h)
//   etcd-v2      the agent that etcd elects
//
// The search never blocks the loop: a thread of its own looks up names and opens files. So it must
// begin after the guard is forked.
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
#include "plan/launch_plan.h"

namespace dtrun::launcher {

struct Head {
  base::UniqueFd listener;             ///< valid: this agent is the head, and listens here
  std::vector<std::string> addresses;  ///< of the head, numeric, in the order to try
  std::uint16_t port = 0;
  std::string host;    ///< as messages call it: of the endpoint, else addresses[0]
  std::string reason;  ///< why it is this agent, or is not; empty where --node_rank has said so
  /// --local_addr as a numeric address, at which stores of this node listen; empty: not given.
  std::string local_address;
  /// How long nobody may listen there: the head may start later than this agent.
  std::chrono::nanoseconds patience{};

  /// If other heads may follow: the last round of the heads before this one.
  std::optional<int> last_round;

  bool is_here() const { return listener.valid(); }
  /// "node1:29400"
  std::string name() const;
};

class MeetingPoint {
 public:
  using Found = std::function<void(Head)>;

  /// Takes back what this agent has published as the head.
  virtual ~MeetingPoint() = default;
  using Lost = std::function<void(const std::string& why)>;
  /// Calls back on the loop, later, once; with etcd, again whenever another head is elected. Errors
  /// are thrown out of the loop's run(). Call it again when the head that was found is gone, or was
  /// no dtrun of this job.
  virtual void find(Found found) = 0;

  // For a head that others may follow:
  /// Called when this agent must not be the head any more.
  virtual void on_lost(Lost lost) { (void)lost; }
  /// This round is about to open. Once `done` is called, rounds of the next head have higher
  /// numbers. `done` is never called if this agent leads no more.
  virtual void record_round(int round, base::EventLoop::Callback done) {
    (void)round;
    done();
  }
  using Verdict = rendezvous::rounds::Close;
  /// The head has its verdict, and has told nobody yet. Once `done` is called it may tell: no other
  /// head can begin a round then, unless a warning says that the verdict could not be written.
  /// `done` is never called if this agent leads no more.
  virtual void record_verdict(const Verdict& verdict, base::EventLoop::Callback done) {
    (void)verdict;
    done();
  }
  /// The job is over, and all have heard it. Once `done` is called nobody can join it any more.
  virtual void close(const Verdict& verdict, base::EventLoop::Callback done) {
    (void)verdict;
    done();
  }

  // For every agent, if another head may follow:
  using Over = std::function<void(const Verdict&)>;
  /// Called when a head's verdict is on record. The head itself tells it, if it lives so long.
  virtual void on_over(Over over) { (void)over; }
};

/// @param loop, plan must live longer
std::unique_ptr<MeetingPoint> make_meeting_point(base::EventLoop& loop, const LaunchPlan& plan);

/// One line for the operator: who hosts, and why. On standard error where there is more than one
/// node.
std::string who_hosts(const Head& head);

}  // namespace dtrun::launcher
