// EtcdElection: which of a run's agents is its head, agreed on through etcd: one leads, under a
// lease that it keeps alive, and publishes its address; the others learn of it and of every change.
// The leader gets an epoch, a number that rises from leader to leader: a message with an epoch
// below the newest is of a leader that was replaced. docs/protocols.md has the keys.
//
// Owned by the agent; belongs to its loop's thread, on which all callbacks run. The calls to etcd,
// which block, are made on one thread of the election's own. Destruction takes half a second at
// most, and gives the leadership back, so that another leads at once.
//
//   // A listening socket on the address by which this machine reaches etcd:
//   const std::string here = base::source_address_towards(etcd.endpoints[0].host);
//   base::UniqueFd listener = base::listen_tcp(here, 0);
//   EtcdElection election(
//       loop,
//       {.etcd = etcd, .run_id = options.run_id, .node = fmt::format("{}.{}", host_name(),
//       getpid()),
//        .address = {here, base::local_port(listener.get())}, .ttl = conf.heartbeat_window},
//       {.on_leader =
//            [&](const ElectedHead& head) {
//              if (head.who == ElectedHead::Who::self) serve(head.epoch, head.last_round);
//              membership.move({head.address.host, *head.address.port}, head.node);
//            },
//        .on_stepped_down = [&](const SteppedDown& down) { head_service->step_down(); },
//        .on_closed = [&](const std::string& verdict) { finish(verdict); },
//        .on_trouble = [&](const base::Error& error) { log or give up; }});
//   // The head, before it opens round n:  election.record_round(n, [&] { tell the members });
//   // and when the job is over:           election.close(write_verdict(verdict), [&] { tell them
//   });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/rendezvous/etcd_options.h"

namespace dtrun::rendezvous {

struct EtcdElectionSettings {
  EtcdOptions etcd;
  std::string run_id;
  std::string node;        ///< this agent's name, which no other agent of the run has
  base::HostPort address;  ///< where this agent listens if it is the head
  std::string prefix = "/torch/elastic/rendezvous";
  /// When the leader is silent for so long, another leads; etcd's shortest is about 2 s.
  std::chrono::seconds ttl{10};
  /// How long etcd remembers that the run is closed.
  std::chrono::seconds closed_ttl{2 * 60 * 60};
};

struct ElectedHead {
  enum class Who { self, other } who = Who::other;
  base::HostPort address;
  std::string node;
  std::int64_t epoch = 0;
  /// For self: the last round that a leader of this run has recorded; 0: none.
  std::int64_t last_round = 0;
};

struct SteppedDown {
  /// lapsed: etcd could not be reached in time. No other leader is known; when etcd answers again
  /// before there is one, on_leader() comes with the same epoch. replaced: another may lead.
  enum class Cause { lapsed, replaced } cause = Cause::lapsed;
  std::int64_t epoch = 0;
  std::string why;
};

struct EtcdElectionCallbacks {
  /// There is a leader from now on: this agent, or another.
  std::function<void(const ElectedHead&)> on_leader;
  /// This agent leads no more. Called before the lease ends; or at once when the process goes on,
  /// if the whole process was stopped.
  std::function<void(const SteppedDown&)> on_stepped_down;
  /// The run is over, for good. The last call.
  std::function<void(const std::string& verdict)> on_closed;
  /// kConnection: etcd cannot be reached; called once per outage, after which all goes on. Any
  /// other code: the other side is no etcd, or refuses this agent; then this is the last call.
  std::function<void(const base::Error&)> on_trouble;
};

class EtcdElection {
 public:
  /// Begins to campaign. @throws Error kInvalidArgument, kSystem
  EtcdElection(base::EventLoop& loop, EtcdElectionSettings settings,
               EtcdElectionCallbacks callbacks);
  ~EtcdElection();
  EtcdElection(const EtcdElection&) = delete;
  EtcdElection& operator=(const EtcdElection&) = delete;

  // For the leader. Complete when `done` is called. If another leads by then, on_stepped_down() is
  // called instead.

  /// The number of the round that is about to open, for the leader after this one.
  void record_round(std::int64_t round, base::EventLoop::Callback done);
  /// No agent can join this run any more. on_closed() is called for all.
  void close(const std::string& verdict, base::EventLoop::Callback done);

  /// The epoch that this agent leads in at this moment, by the monotonic clock; nullopt: it does
  /// not lead, or cannot know. Ask it before an action that only the leader may take.
  std::optional<std::int64_t> held_epoch() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::rendezvous
