#include "dtrun/rendezvous/hash_store.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "store/store_core.h"
#include "store/store_errors.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;

// A thread that sleeps in wait(); its own condition variable, so that a set wakes only those whom
// it concerns.
class SleepingThread : public Waiter {
 public:
  /// @return false at the deadline, and where wake() came before
  bool released_by(std::unique_lock<std::mutex>& lock, Deadline deadline) {
    const auto done = [this] { return released_ || is_woken_; };
    if (!deadline.is_never()) wake_.wait_until(lock, deadline.when(), done);
    if (deadline.is_never()) wake_.wait(lock, done);
    return released_;
  }

  void wake() {
    is_woken_ = true;
    wake_.notify_one();
  }

 private:
  void released() override {
    released_ = true;
    wake_.notify_one();
  }

  std::condition_variable wake_;
  bool released_ = false;
  bool is_woken_ = false;
};

class LockedStore : public HashStore {
 public:
  void end_waits(const base::Error& why) override {
    const std::lock_guard lock(mutex_);
    if (waits_ended_) return;
    waits_ended_ = why;
    for (SleepingThread* const thread : sleeping_) thread->wake();
  }

  void set(const std::string& key, std::string_view value, Deadline) override {
    const std::lock_guard lock(mutex_);
    core_.set(key, std::string(value));
  }

  std::string get(const std::string& key, Deadline deadline) override {
    return multi_get({key}, deadline).front();
  }

  std::optional<std::string> try_get(const std::string& key, Deadline) override {
    const std::lock_guard lock(mutex_);
    const Value value = core_.get(key);
    if (!value) return std::nullopt;
    return std::string(*value);
  }

  std::int64_t add(const std::string& key, std::int64_t delta, Deadline) override {
    const std::lock_guard lock(mutex_);
    const std::optional<std::int64_t> sum = core_.add(key, delta);
    if (!sum) throw not_a_number(key, std::string(*core_.get(key)));
    return *sum;
  }

  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired, Deadline) override {
    const std::lock_guard lock(mutex_);
    return std::string(*core_.compare_set(key, expected, desired));
  }

  bool check(const Keys& keys, Deadline) override {
    const std::lock_guard lock(mutex_);
    return core_.check(keys);
  }

  void wait(const Keys& keys, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    wait_locked(lock, keys, deadline, deadline.remaining());
  }

  bool delete_key(const std::string& key, Deadline) override {
    const std::lock_guard lock(mutex_);
    return core_.remove(key);
  }

  std::int64_t num_keys(Deadline) override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(core_.key_count());
  }

  void append(const std::string& key, std::string_view value, Deadline) override {
    const std::lock_guard lock(mutex_);
    core_.append(key, value);
  }

  Keys multi_get(const Keys& keys, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    std::unique_lock lock(mutex_);
    while (true) {
      wait_locked(lock, keys, deadline, budget);
      Keys values;
      for (const std::string& key : keys) {
        const Value value = core_.get(key);
        if (!value) break;
        values.emplace_back(*value);
      }
      if (values.size() == keys.size()) return values;
      // A key was deleted again before we looked, or there is only a queue of that name.
      if (core_.check(keys)) throw not_a_value(keys);
    }
  }

  void multi_set(const Pairs& pairs, Deadline) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, value] : pairs) core_.set(key, value);
  }

  void queue_push(const std::string& key, std::string_view value, Deadline) override {
    const std::lock_guard lock(mutex_);
    core_.queue_push(key, std::string(value));
  }

  std::string queue_pop(const std::string& key, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    std::unique_lock lock(mutex_);
    while (true) {
      if (const Value value = core_.queue_pop(key)) return std::string(*value);
      if (core_.check({key})) throw not_a_queue(key);
      wait_locked(lock, {key}, deadline, budget);
    }
  }

  std::int64_t queue_len(const std::string& key, Deadline) override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(core_.queue_length(key));
  }

  Keys list_keys(Deadline) override {
    const std::lock_guard lock(mutex_);
    return core_.list_keys();
  }

  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    std::unique_lock lock(mutex_);
    SleepingThread thread;
    switch (core_.barrier(thread, key, world)) {
      case StoreCore::Barrier::kPassed:
        return;
      case StoreCore::Barrier::kNotANumber:
        throw not_a_number(key, std::string(*core_.get(key)));
      case StoreCore::Barrier::kWaiting:
        break;
    }
    if (is_released(thread, lock, deadline)) return;
    throw barrier_timeout(budget, key, std::string(*core_.get(key)), world);
  }

 private:
  /// A wait that has not been answered is cancelled. @throws what end_waits() was told
  bool is_released(SleepingThread& thread, std::unique_lock<std::mutex>& lock, Deadline deadline) {
    if (waits_ended_) thread.wake();
    sleeping_.push_back(&thread);
    const bool is_released = thread.released_by(lock, deadline);
    std::erase(sleeping_, &thread);
    if (is_released) return true;
    core_.cancel(thread);
    if (waits_ended_) throw *waits_ended_;
    return false;
  }

  void wait_locked(std::unique_lock<std::mutex>& lock, const Keys& keys, Deadline deadline,
                   Deadline::Duration budget) {
    SleepingThread thread;
    if (core_.wait(thread, keys)) return;
    if (is_released(thread, lock, deadline)) return core_.settle(thread);
    Keys missing;
    for (const std::string& key : keys)
      if (!core_.check({key})) missing.push_back(key);
    throw wait_timeout(budget, keys, missing);
  }

  std::mutex mutex_;
  StoreCore core_;                          // guarded by mutex_
  std::vector<SleepingThread*> sleeping_;   // guarded by mutex_
  std::optional<base::Error> waits_ended_;  // guarded by mutex_
};

}  // namespace

std::shared_ptr<HashStore> make_hash_store() {
  return std::make_shared<LockedStore>();
}

}  // namespace dtrun::rendezvous
