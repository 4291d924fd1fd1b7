// SimulatedPlace: the place of a rank that is a thread of simulate(): what the environment and the
// store's address are for one that is a process.
#pragma once

#include <memory>
#include <utility>

#include "dtrun/base/env.h"
#include "dtrun/rendezvous/store.h"

namespace dtrun::runtime {

class SimulatedPlace {
 public:
  /// Stands for this thread as long as it lives.
  SimulatedPlace(std::shared_ptr<rendezvous::Store> store, base::Environment environment)
      : store_(std::move(store)), environment_(std::move(environment)) {
    of_thread_ = this;
  }
  ~SimulatedPlace() { of_thread_ = nullptr; }
  SimulatedPlace(const SimulatedPlace&) = delete;
  SimulatedPlace& operator=(const SimulatedPlace&) = delete;

  /// Null: this thread's rank is the process.
  static const SimulatedPlace* of_thread() { return of_thread_; }

  const std::shared_ptr<rendezvous::Store>& store() const { return store_; }
  const base::Environment& environment() const { return environment_; }

 private:
  inline static constinit thread_local const SimulatedPlace* of_thread_ = nullptr;
  const std::shared_ptr<rendezvous::Store> store_;
  const base::Environment environment_;
};

}  // namespace dtrun::runtime
