// StuckStore: a store that answers no more, until it is told to: as one whose server is stopped.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "dtrun/rendezvous/store.h"

namespace dtrun::test {

class StuckStore : public rendezvous::Store {
 public:
  explicit StuckStore(std::shared_ptr<rendezvous::Store> store) : store_(std::move(store)) {}

  /// From now on no call returns.
  void get_stuck() {
    const std::scoped_lock lock(mutex_);
    stuck_ = true;
  }
  void answer() {
    const std::scoped_lock lock(mutex_);
    stuck_ = false;
    changed_.notify_all();
  }
  void await_stuck_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_ > 0; });
  }

  void set(const std::string& key, std::string_view value, base::Deadline deadline) override {
    return pass().set(key, value, deadline);
  }
  std::string get(const std::string& key, base::Deadline deadline) override {
    return pass().get(key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key, base::Deadline deadline) override {
    return pass().try_get(key, deadline);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, base::Deadline deadline) override {
    return pass().add(key, delta, deadline);
  }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired, base::Deadline deadline) override {
    return pass().compare_set(key, expected, desired, deadline);
  }
  bool check(const Keys& keys, base::Deadline deadline) override {
    return pass().check(keys, deadline);
  }
  void wait(const Keys& keys, base::Deadline deadline) override { pass().wait(keys, deadline); }
  bool delete_key(const std::string& key, base::Deadline deadline) override {
    return pass().delete_key(key, deadline);
  }
  std::int64_t num_keys(base::Deadline deadline) override { return pass().num_keys(deadline); }
  void append(const std::string& key, std::string_view value, base::Deadline deadline) override {
    pass().append(key, value, deadline);
  }
  Keys multi_get(const Keys& keys, base::Deadline deadline) override {
    return pass().multi_get(keys, deadline);
  }
  void multi_set(const Pairs& pairs, base::Deadline deadline) override {
    pass().multi_set(pairs, deadline);
  }
  void queue_push(const std::string& key, std::string_view value,
                  base::Deadline deadline) override {
    pass().queue_push(key, value, deadline);
  }
  std::string queue_pop(const std::string& key, base::Deadline deadline) override {
    return pass().queue_pop(key, deadline);
  }
  std::int64_t queue_len(const std::string& key, base::Deadline deadline) override {
    return pass().queue_len(key, deadline);
  }
  Keys list_keys(base::Deadline deadline) override { return pass().list_keys(deadline); }
  void barrier(const std::string& key, std::int64_t world, base::Deadline deadline) override {
    pass().barrier(key, world, deadline);
  }
  using Store::add;
  using Store::append;
  using Store::barrier;
  using Store::check;
  using Store::compare_set;
  using Store::delete_key;
  using Store::get;
  using Store::list_keys;
  using Store::multi_get;
  using Store::multi_set;
  using Store::num_keys;
  using Store::queue_len;
  using Store::queue_pop;
  using Store::queue_push;
  using Store::set;
  using Store::try_get;
  using Store::wait;

 private:
  Store& pass() {
    std::unique_lock lock(mutex_);
    if (stuck_) ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !stuck_; });
    return *store_;
  }

  const std::shared_ptr<rendezvous::Store> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stuck_ = false;
  int calls_ = 0;  ///< that got stuck
};

}  // namespace dtrun::test
