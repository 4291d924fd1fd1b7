// Operation: one collective, send or receive in flight in a group's engine. Made by the backend,
// moved on by whoever drives the engine, under the engine's lock; its Work may be asked from any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "algorithm.h"
#include "channel.h"
#include "dtrun/base/deadline.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/work.h"

namespace dtrun::collectives::cpu {

class GroupEngine;
class GroupChannels;

/// Of a collective: the same on all members.
inline Lane lane_of(const Situation& situation) {
  return is_bulk(situation.kind, situation.bytes) ? Lane::bulk : Lane::prompt;
}

class Operation : public Work::State {
 public:
  Operation(std::shared_ptr<GroupEngine> engine, Call call, Lane lane)
      : engine_(std::move(engine)), call_(std::move(call)), lane_(lane) {}

  // Any thread.
  void wait(base::Deadline deadline) override;
  bool is_completed() override;
  std::exception_ptr exception() override { return done() ? error_ : nullptr; }
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Under the engine's lock.
  /// Moves what can be moved; complete() once all is. @return whether anything moved.
  /// @throws Error, after which the group has failed
  virtual bool step(GroupChannels& channels) = 0;
  /// Group ranks that this waits for, in order.
  virtual std::vector<int> missing() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Who is missing may itself wait for another rank that this one needs.
  virtual bool relays() const { return false; }
  /// Goes by messages only, so that members may not have met in it.
  virtual bool by_messages() const { return true; }
  /// What it reads and writes. Nothing for sends and receives, which wait for no collective.
  virtual std::span<const Buffer> reads() const { return {}; }
  virtual std::span<const Buffer> writes() const { return {}; }
  /// The members may be reading its memory now.
  virtual bool shows_memory() const { return false; }
  /// One writes memory that the other uses.
  bool conflicts_with(const Operation& other) const;
  /// The operation is over: with an error, or well.
  void complete(std::exception_ptr error = nullptr);
  /// Gives back the memory of its own once it is over: the caller may keep its Work for long.
  virtual void let_go() {}
  /// Once it is over: runs the callbacks behind it, which the engine's lock must not be held for.
  /// Empty: there are none.
  std::function<void()> take_callbacks() { return std::exchange(callbacks_, nullptr); }

  const GroupEngine& engine() const { return *engine_; }
  const Call& call() const { return call_; }
  const Fingerprint& fingerprint() const { return call_.fingerprint; }
  Lane lane() const { return lane_; }

  /// For the engine's books.
  std::uint64_t record_number = 0;
  /// An earlier collective of the other lane, which has memory in common with this one. Null: none.
  std::shared_ptr<const Operation> after;
  bool announced = false;
  /// When the peers that it waits for are to be watched, anew.
  base::Deadline watch_next = base::Deadline::never();
  /// A rank that it waits for and that was past this call at the last look; -1: none.
  int passed_by = -1;

 protected:
  const std::shared_ptr<GroupEngine>& shared_engine() const { return engine_; }

 private:
  const std::shared_ptr<GroupEngine> engine_;
  Call call_;
  const Lane lane_;
  std::exception_ptr error_;
  std::function<void()> callbacks_;
  std::atomic<bool> done_{false};
};

}  // namespace dtrun::collectives::cpu
