// Herald: the thread that talks to the store for the groups of one rank, so that nobody else does
// it with a group's mutex held: a store that does not answer must not keep a group from ending.
// Errands are run one after the other. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace dtrun::collectives::nccl {

class Herald {
 public:
  using Duration = std::chrono::steady_clock::duration;
  /// On the herald's thread. Never throws, and holds what it needs: it may be run after all else is
  /// gone. @return when to run it again; nullopt: it is over
  using Errand = std::function<std::optional<Duration>()>;

  /// @throws Error kSystem
  Herald();
  /// Lets what was posted be run, for a while; a store that does not answer keeps the thread, which
  /// is then left to itself.
  ~Herald();
  Herald(const Herald&) = delete;
  Herald& operator=(const Herald&) = delete;

  void post(Errand errand);

 private:
  struct State;
  static void run(State& state);

  const std::shared_ptr<State> state_;
};

}  // namespace dtrun::collectives::nccl
