#include "dtrun/rendezvous/file_store.h"

#include <fmt/core.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <type_traits>

#include "dtrun/base/error.h"
#include "file_watch.h"
#include "store_core.h"
#include "store_errors.h"
#include "store_file.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using Keys = std::vector<std::string>;
using LockKind = StoreFile::Lock::Kind;

constexpr const char* kRefcount = "refcount/";
constexpr const char* kCleanup = "cleanup/";

std::string in_file(const std::string& key) {
  return "/" + key;
}
Keys in_file(const Keys& keys) {
  Keys result;
  for (const std::string& key : keys) result.push_back(in_file(key));
  return result;
}

// One call that waits for keys; leaves no trace of itself in the core.
class KeyWait : public Waiter {
 public:
  explicit KeyWait(StoreCore& core) : core_(core) {}
  ~KeyWait() override { core_.cancel(*this); }
  bool is_over() const { return over_; }

 private:
  void released() override { over_ = true; }
  StoreCore& core_;
  bool over_ = false;
};

// The core is what the file says, as far as it has been read.
class FileStore : public Store {
 public:
  explicit FileStore(const FileStoreOptions& options)
      : workers_(options.workers), file_(options.path, options.leftover) {
    changing([&] { count(kRefcount, 1); });
  }

  ~FileStore() override {
    try {
      leave();
    } catch (const base::Error&) {
      // A full disk, say: then the file stays, and the next job discards it.
    }
  }

  void set(const std::string& key, std::string_view value) override {
    changing([&] { put(in_file(key), value); });
  }

  std::string get(const std::string& key, Deadline deadline) override {
    return multi_get({key}, deadline).front();
  }

  std::optional<std::string> try_get(const std::string& key) override {
    return reading([&]() -> std::optional<std::string> {
      const Value value = core_.get(in_file(key));
      if (!value) return std::nullopt;
      return *value;
    });
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return changing([&] { return count(in_file(key), delta); });
  }

  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return changing([&] {
      const Value now = core_.get(in_file(key));
      if (now && *now != expected) return *now;
      if (!now && !expected.empty()) return std::string(expected);
      put(in_file(key), desired);
      return std::string(desired);
    });
  }

  bool check(const Keys& keys) override {
    return reading([&] { return core_.check(in_file(keys)); });
  }

  void wait(const Keys& keys, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    std::unique_lock lock(mutex_);
    catch_up();
    wait_locked(lock, in_file(keys), deadline, budget);
  }

  bool delete_key(const std::string& key) override {
    return changing([&] {
      if (!core_.get(in_file(key))) return false;
      write({{"-" + in_file(key), ""}});
      return true;
    });
  }

  std::int64_t num_keys() override {
    return reading([&] { return static_cast<std::int64_t>(core_.key_count()); });
  }

  void append(const std::string& key, std::string_view value) override {
    changing([&] {
      const Value now = core_.get(in_file(key));
      put(in_file(key), now ? *now + std::string(value) : std::string(value));
    });
  }

  Keys multi_get(const Keys& keys, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    const Keys wanted = in_file(keys);
    std::unique_lock lock(mutex_);
    catch_up();
    while (true) {
      wait_locked(lock, wanted, deadline, budget);
      Keys values;
      for (const std::string& key : wanted) {
        const Value value = core_.get(key);
        if (!value) break;
        values.push_back(*value);
      }
      if (values.size() == keys.size()) return values;
      // A key was deleted again before we looked, or there is only a queue of that name.
      if (core_.check(wanted)) throw not_a_value(wanted);
    }
  }

  void multi_set(const std::vector<std::pair<std::string, std::string>>& pairs) override {
    std::vector<StoreRecord> records;
    for (const auto& [key, value] : pairs) records.push_back({in_file(key), value});
    changing([&] { write(records); });
  }

  void queue_push(const std::string& key, std::string_view value) override {
    changing([&] { write({{"+" + in_file(key), std::string(value)}}); });
  }

  std::string queue_pop(const std::string& key, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    std::unique_lock lock(mutex_);
    while (true) {
      if (std::optional<std::string> element = try_pop(in_file(key))) return std::move(*element);
      if (core_.check({in_file(key)})) throw not_a_queue(in_file(key));
      wait_locked(lock, {in_file(key)}, deadline, budget);
    }
  }

  std::int64_t queue_len(const std::string& key) override {
    return reading([&] { return static_cast<std::int64_t>(core_.queue_length(in_file(key))); });
  }

  Keys list_keys() override {
    return reading([&] {
      Keys keys;
      for (const std::string& key : core_.list_keys())
        if (key.starts_with('/')) keys.push_back(key.substr(1));
      return keys;
    });
  }

  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    const std::string counter = in_file(key);
    std::unique_lock lock(mutex_);
    {
      const StoreFile::Lock file_lock(file_, LockKind::exclusive);
      replay();
      count(counter, 1);
    }
    const auto complete = [&] {
      const Value arrived = core_.get(counter);
      return arrived && counter_sum(*arrived, 0).value_or(0) >= world;
    };
    if (await(lock, deadline, complete)) return;
    const Value arrived = core_.get(counter);
    throw barrier_timeout(budget, counter, arrived ? *arrived : "0", world);
  }

 private:
  template <typename Action>
  std::invoke_result_t<Action> reading(Action action) {
    const std::lock_guard lock(mutex_);
    catch_up();
    return action();
  }

  template <typename Action>
  std::invoke_result_t<Action> changing(Action action) {
    const std::lock_guard lock(mutex_);
    const StoreFile::Lock file_lock(file_, LockKind::exclusive);
    replay();
    return action();
  }

  void catch_up() {
    const StoreFile::Lock file_lock(file_, LockKind::shared);
    replay();
  }

  // From here on: mutex_ and the file's lock are held.

  void replay() {
    for (const StoreRecord& record : file_.read_new()) apply(record);
  }

  void apply(const StoreRecord& record) {
    if (record.key.starts_with('-')) {
      core_.remove(record.key.substr(1));
    } else if (record.key.starts_with('+')) {
      core_.queue_push(record.key.substr(1), record.value);
    } else if (record.key.starts_with('!')) {
      core_.queue_pop(record.key.substr(1));
    } else {
      core_.set(record.key, record.value);
    }
  }

  void write(const std::vector<StoreRecord>& records) {
    file_.append(records);
    for (const StoreRecord& record : records) apply(record);
  }

  void put(const std::string& key, std::string_view value) { write({{key, std::string(value)}}); }

  std::int64_t count(const std::string& key, std::int64_t delta) {
    const Value now = core_.get(key);
    const std::optional<std::int64_t> sum = counter_sum(now ? *now : "0", delta);
    if (!sum) throw not_a_number(key, *now);
    put(key, std::to_string(*sum));
    return *sum;
  }

  std::optional<std::string> try_pop(const std::string& queue) {
    const StoreFile::Lock file_lock(file_, LockKind::exclusive);
    replay();
    const Value front = core_.queue_front(queue);
    if (!front) return std::nullopt;
    write({{"!" + queue, ""}});
    return *front;
  }

  void leave() {
    changing([&] {
      if (!file_.is_in_place()) return;
      const std::int64_t gone = count(kCleanup, 1);
      const std::int64_t left = count(kRefcount, -1);
      if (workers_ > 0 && gone >= workers_ && left <= 0) file_.remove();
    });
  }

  // Waiting, with mutex_ held but not the file's lock.

  void wait_locked(std::unique_lock<std::mutex>& lock, const Keys& keys, Deadline deadline,
                   Deadline::Duration budget) {
    KeyWait wait(core_);
    if (core_.wait(wait, keys)) return;
    if (await(lock, deadline, [&] { return wait.is_over(); })) return core_.settle(wait);
    Keys missing;
    for (const std::string& key : keys)
      if (!core_.check({key})) missing.push_back(key);
    throw wait_timeout(budget, keys, missing);
  }

  /// False at the deadline. One of the threads that wait watches the file for all; when it leaves,
  /// another takes its place.
  bool await(std::unique_lock<std::mutex>& lock, Deadline deadline,
             const std::function<bool()>& done) {
    if (!watch_) {
      watch_.emplace(file_.fd(), file_.is_on_network() ? FileWatch::Tells::own_changes
                                                       : FileWatch::Tells::every_change);
      catch_up();  // what came before the watch began
    }
    while (!done()) {
      if (deadline.expired()) return false;
      if (watched_) {
        if (deadline.is_never())
          changed_.wait(lock);
        else
          changed_.wait_until(lock, deadline.when());
        continue;
      }
      watched_ = true;
      lock.unlock();
      watch_->await(deadline);
      lock.lock();
      watched_ = false;
      changed_.notify_all();
      catch_up();
    }
    return true;
  }

  const int workers_;
  std::mutex mutex_;
  StoreFile file_;
  StoreCore core_;
  std::optional<FileWatch> watch_;  ///< from the first wait on
  bool watched_ = false;            ///< a thread is in watch_->await()
  std::condition_variable changed_;
};

}  // namespace

std::shared_ptr<Store> open_file_store(const FileStoreOptions& options) {
  return std::make_shared<FileStore>(options);
}

}  // namespace dtrun::rendezvous
