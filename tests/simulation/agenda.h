// What is going to happen in the simulated world, in order of time; at the same time, in the order
// in which it was arranged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::simulation {

using rendezvous::rounds::Moment;

enum class Happening : std::uint8_t {
  kAgentStarts,    ///< a process of dtrun on this node
  kMemberTimer,    ///< of the agent
  kHeadTimer,      ///< of the head that it hosts
  kDialEnds,       ///< number: of the attempt
  kArrival,        ///< number: of the connection; what travels to the head
  kReturn,         ///< the same; what travels to the member
  kUserTimeout,    ///< of what travels to the head
  kReturnTimeout,  ///< of what travels to the member
  kStoreOpens,     ///< number: the round
  kGroupFate,      ///< number: of the worker group, which ends by itself
  kGroupGone,      ///< number: of the worker group, no process is left
  kTellFailed,     ///< the agent hears of it
  kTellGone,
  kFault,
  kResume,  ///< the end of a pause
  kPowerOn,
  kLease,         ///< the election looks at its lease
  kHeadNews,      ///< this agent hears who the head is
  kVerdictWrite,  ///< number: of the head that has judged
  kVerdictNews,   ///< this agent hears what a head has left in etcd
};

/// Happenings of an agent that stands still wait until it goes on.
constexpr bool of_agent(Happening what) {
  switch (what) {
    case Happening::kMemberTimer:
    case Happening::kHeadTimer:
    case Happening::kDialEnds:
    case Happening::kStoreOpens:
    case Happening::kTellFailed:
    case Happening::kTellGone:
    case Happening::kHeadNews:
    case Happening::kVerdictWrite:
    case Happening::kVerdictNews:
      return true;
    default:
      return false;
  }
}

struct Appointment {
  Moment at{};
  std::uint64_t order = 0;
  Happening what = Happening::kFault;
  int node = -1;
  int life = 0;  ///< of the node's agent; an earlier one's appointments lapse
  std::int64_t number = 0;
};

class Agenda {
 public:
  bool empty() const { return heap_.empty(); }
  const Appointment& next() const { return heap_.front(); }

  void arrange(Appointment appointment) {
    appointment.order = ++arranged_;
    heap_.push_back(appointment);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Appointment take() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Appointment first = heap_.back();
    heap_.pop_back();
    return first;
  }

 private:
  static bool later(const Appointment& left, const Appointment& right) {
    return left.at != right.at ? left.at > right.at : left.order > right.order;
  }

  std::vector<Appointment> heap_;
  std::uint64_t arranged_ = 0;
};

}  // namespace dtrun::simulation
