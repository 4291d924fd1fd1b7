// EtcdCampaign: what the thread of an EtcdElection does: keeps a lease, campaigns, watches, and
// carries out what the leader asks for. The first of its three calls runs on that thread until the
// election is over; the others may come from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "dtrun/rendezvous/etcd_election.h"
#include "etcd/etcd_watch.h"

namespace dtrun::rendezvous {

class EtcdCampaign {
 public:
  using Clock = base::Deadline::Clock;

  /// @param post has the loop run a function, unless the election is gone by then
  EtcdCampaign(EtcdElectionSettings settings, EtcdElectionCallbacks callbacks,
               std::function<void(base::EventLoop::Callback)> post);

  void run();
  /// Ends run().
  void end() { interrupt_.raise(); }

  struct Order {
    enum class Kind { record_round, close } kind;
    std::int64_t round = 0;
    std::string verdict;
    base::EventLoop::Callback done;
  };
  void give(Order order);
  std::optional<std::int64_t> held_epoch() const;

 private:
  void session();
  void renew_lease();
  void keep_lease(Clock::time_point sent, std::chrono::seconds ttl);
  void read_all();
  void campaign();
  void take_leader(const EtcdKeyValue& pair, std::int64_t last_round);
  bool take_event(const EtcdEvent& event);
  bool is_mine(const EtcdKeyValue& pair) const { return lease_.id != 0 && pair.lease == lease_.id; }
  enum class Clockwork { in_time, lapsed };
  Clockwork look_at_clock();
  void step_down(SteppedDown::Cause cause, const std::string& why);
  void tell_leader(const ElectedHead& head);
  void tell_closed(const std::string& verdict);
  void tell_trouble(const base::Error& error);
  void carry_out_orders();
  bool carry_out(const Order& order);
  bool record_round(std::int64_t round);
  bool close(const std::string& verdict);
  void resign();
  base::Deadline call_deadline() const;
  std::string address_text() const;
  std::string key(const std::string& name) const;

  const EtcdElectionSettings settings_;
  const EtcdElectionCallbacks callbacks_;
  const std::function<void(base::EventLoop::Callback)> post_;
  const Interrupt interrupt_;
  EtcdClient client_;

  EtcdLease lease_;
  Clock::time_point keep_at_{};     ///< when the lease is kept alive next
  Clock::time_point safe_until_{};  ///< when a leader that has heard nothing must step down
  std::int64_t leads_in_ = 0;       ///< the epoch that this agent leads in; 0: it does not
  std::int64_t told_ = 0;           ///< the epoch of the last on_leader()
  bool has_leader_ = false;         ///< as far as is known
  std::int64_t known_at_ = 0;       ///< the revision of what was read last
  bool closed_ = false;
  bool in_trouble_ = false;
  std::int64_t round_at_ = 0;  ///< the revision of the last round's key

  std::atomic<std::int64_t> held_epoch_{0};
  std::atomic<Clock::rep> held_until_{0};
  base::UniqueFd ordered_;  ///< readable: there are orders
  std::mutex mutex_;
  std::vector<Order> orders_;  ///< guarded by mutex_
};

}  // namespace dtrun::rendezvous
