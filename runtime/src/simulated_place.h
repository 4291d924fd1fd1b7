// SimulatedPlace: the place of a rank that is a thread of simulate(): what the environment and the
// store's address are for one that is a process.
#pragma once

#include <memory>
#include <utility>

#include "dtrun/base/env.h"
#include "simulated_worlds.h"

namespace dtrun::runtime {

class SimulatedPlace {
 public:
  /// Stands for this thread as long as it lives.
  SimulatedPlace(SimulatedWorlds& worlds, base::Environment environment)
      : worlds_(worlds), environment_(std::move(environment)) {
    of_thread_ = this;
  }
  ~SimulatedPlace() { of_thread_ = nullptr; }
  SimulatedPlace(const SimulatedPlace&) = delete;
  SimulatedPlace& operator=(const SimulatedPlace&) = delete;

  /// Null: this thread's rank is the process.
  static SimulatedPlace* of_thread() { return of_thread_; }

  /// Of all ranks.
  std::shared_ptr<rendezvous::Store> store() const { return worlds_.store(); }
  /// Before this rank waits for the others of a world.
  void join(int world_size) { worlds_.join(++joined_, world_size); }
  int joined() const { return joined_; }
  const base::Environment& environment() const { return environment_; }

 private:
  inline static constinit thread_local SimulatedPlace* of_thread_ = nullptr;
  SimulatedWorlds& worlds_;
  const base::Environment environment_;
  int joined_ = 0;  ///< worlds
};

}  // namespace dtrun::runtime
