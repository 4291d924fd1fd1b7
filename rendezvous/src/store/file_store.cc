#include "dtrun/rendezvous/file_store.h"

#include <fmt/core.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <type_traits>

#include "dtrun/base/error.h"
#include "store/file_watch.h"
#include "store/store_core.h"
#include "store/store_errors.h"
#include "store/store_file.h"
#include "wire/answer_deadline.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using Keys = Store::Keys;
using LockKind = StoreFile::Lock::Kind;

/// How long closing may wait for the file's lock; after that the file stays behind.
constexpr Deadline::Duration kCloseBudget = std::chrono::seconds(10);
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

// One operation: for its deadline and its errors.
struct Call {
  Call(std::string_view name, Keys in_the_file, Deadline until)
      : operation(name), keys(std::move(in_the_file)), deadline(until) {}

  std::string_view operation;
  Keys keys;
  Deadline deadline;
  Deadline::Duration budget = deadline.remaining();
  Deadline::Clock::time_point begin = Deadline::Clock::now();
};

// The core holds the file's contents as far as they have been read.
class FileStore : public Store {
 public:
  explicit FileStore(const FileStoreOptions& options)
      : workers_(options.workers), file_(options.path) {
    // Both happen under one lock: the last user removes a file in which no user is counted.
    const StoreFile::Lock lock =
        file_.enter(options.leftover, Deadline::after(options.open_timeout));
    replay();
    count(kRefcount, 1);
  }

  ~FileStore() override {
    try {
      leave();
    } catch (const base::Error&) {
      // A full disk, say: then the file stays, and the next job discards it.
    }
  }

  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    changing({"set", {in_file(key)}, deadline}, [&] { put(in_file(key), value); });
  }

  std::string get(const std::string& key, Deadline deadline) override {
    return multi_get({key}, deadline).front();
  }

  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return reading({"get", {in_file(key)}, deadline}, [&]() -> std::optional<std::string> {
      const Value value = core_.get(in_file(key));
      if (!value) return std::nullopt;
      return std::string(*value);
    });
  }

  std::int64_t add(const std::string& key, std::int64_t delta, Deadline deadline) override {
    return changing({"add", {in_file(key)}, deadline}, [&] { return count(in_file(key), delta); });
  }

  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired, Deadline deadline) override {
    return changing({"compare_set", {in_file(key)}, deadline}, [&] {
      const Value now = core_.get(in_file(key));
      if (now && *now != expected) return std::string(*now);
      if (!now && !expected.empty()) return std::string(expected);
      put(in_file(key), desired);
      return std::string(desired);
    });
  }

  bool check(const Keys& keys, Deadline deadline) override {
    return reading({"check", in_file(keys), deadline}, [&] { return core_.check(in_file(keys)); });
  }

  void wait(const Keys& keys, Deadline deadline) override {
    const Call call("wait", in_file(keys), deadline);
    std::unique_lock lock(mutex_);
    catch_up(lock, call);
    wait_locked(lock, call);
  }

  bool delete_key(const std::string& key, Deadline deadline) override {
    return changing({"delete_key", {in_file(key)}, deadline}, [&] {
      if (!core_.get(in_file(key))) return false;
      write({{"-" + in_file(key), ""}});
      return true;
    });
  }

  std::int64_t num_keys(Deadline deadline) override {
    return reading({"num_keys", {}, deadline},
                   [&] { return static_cast<std::int64_t>(core_.key_count()); });
  }

  void append(const std::string& key, std::string_view value, Deadline deadline) override {
    changing({"append", {in_file(key)}, deadline}, [&] {
      const Value now = core_.get(in_file(key));
      put(in_file(key), now ? std::string(*now).append(value) : std::string(value));
    });
  }

  Keys multi_get(const Keys& keys, Deadline deadline) override {
    const Call call("wait", in_file(keys), deadline);
    std::unique_lock lock(mutex_);
    catch_up(lock, call);
    while (true) {
      wait_locked(lock, call);
      Keys values;
      for (const std::string& key : call.keys) {
        const Value value = core_.get(key);
        if (!value) break;
        values.emplace_back(*value);
      }
      if (values.size() == keys.size()) return values;
      // A key was deleted again before we looked, or there is only a queue of that name.
      if (core_.check(call.keys)) throw not_a_value(call.keys);
    }
  }

  void multi_set(const Pairs& pairs, Deadline deadline) override {
    std::vector<StoreRecord> records;
    Keys keys;
    for (const auto& [key, value] : pairs) {
      records.push_back({in_file(key), value});
      keys.push_back(in_file(key));
    }
    changing({"multi_set", std::move(keys), deadline}, [&] { write(records); });
  }

  void queue_push(const std::string& key, std::string_view value, Deadline deadline) override {
    changing({"queue_push", {in_file(key)}, deadline}, [&] {
      write({{"+" + in_file(key), std::string(value)}});
    });
  }

  std::string queue_pop(const std::string& key, Deadline deadline) override {
    const Call call("queue_pop", {in_file(key)}, deadline);
    std::unique_lock lock(mutex_);
    while (true) {
      if (std::optional<std::string> element = try_pop(lock, call)) return std::move(*element);
      if (core_.check(call.keys)) throw not_a_queue(in_file(key));
      wait_locked(lock, call);
    }
  }

  std::int64_t queue_len(const std::string& key, Deadline deadline) override {
    return reading({"queue_len", {in_file(key)}, deadline},
                   [&] { return static_cast<std::int64_t>(core_.queue_length(in_file(key))); });
  }

  Keys list_keys(Deadline deadline) override {
    return reading({"list_keys", {}, deadline}, [&] {
      Keys keys;
      for (const std::string& key : core_.list_keys())
        if (key.starts_with('/')) keys.push_back(key.substr(1));
      return keys;
    });
  }

  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override {
    const Call call("barrier", {in_file(key)}, deadline);
    const std::string& counter = call.keys.front();
    std::unique_lock lock(mutex_);
    {
      const StoreFile::Lock file_lock = lock_file(lock, LockKind::exclusive, call);
      replay();
      count(counter, 1);
    }
    const auto complete = [&] {
      const Value arrived = core_.get(counter);
      return arrived && counter_sum(*arrived, 0).value_or(0) >= world;
    };
    if (await(lock, call, complete)) return;
    const Value arrived = core_.get(counter);
    throw barrier_timeout(call.budget, counter, std::string(arrived ? *arrived : "0"), world,
                          name());
  }

 private:
  std::string name() const { return "the store file " + file_.path(); }

  // While another process has the file's lock, this one's other threads may have mutex_.
  StoreFile::Lock lock_file(std::unique_lock<std::mutex>& lock, LockKind kind, const Call& call) {
    const auto pause = [&](Deadline until) { file_lock_pause_.wait_until(lock, until.when()); };
    try {
      return StoreFile::Lock(file_, kind, answer_deadline(call.deadline), pause);
    } catch (const base::Error& error) {
      if (error.code() != base::ErrorCode::kTimeout) throw;
      throw answer_timeout(call.operation, Deadline::Clock::now() - call.begin, call.keys,
                           error.summary() + ": " + error.why());
    }
  }

  template <typename Action>
  std::invoke_result_t<Action> reading(const Call& call, Action action) {
    std::unique_lock lock(mutex_);
    catch_up(lock, call);
    return action();
  }

  template <typename Action>
  std::invoke_result_t<Action> changing(const Call& call, Action action) {
    std::unique_lock lock(mutex_);
    const StoreFile::Lock file_lock = lock_file(lock, LockKind::exclusive, call);
    replay();
    return action();
  }

  void catch_up(std::unique_lock<std::mutex>& lock, const Call& call) {
    const StoreFile::Lock file_lock = lock_file(lock, LockKind::shared, call);
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
    if (!sum) throw not_a_number(key, std::string(*now));
    put(key, std::to_string(*sum));
    return *sum;
  }

  std::optional<std::string> try_pop(std::unique_lock<std::mutex>& lock, const Call& call) {
    const StoreFile::Lock file_lock = lock_file(lock, LockKind::exclusive, call);
    replay();
    const std::string& queue = call.keys.front();
    const Value front = core_.queue_front(queue);
    if (!front) return std::nullopt;
    write({{"!" + queue, ""}});
    return std::string(*front);
  }

  void leave() {
    changing({"close", {}, Deadline::after(kCloseBudget)}, [&] {
      if (!file_.is_in_place()) return;
      const std::int64_t gone = count(kCleanup, 1);
      const std::int64_t left = count(kRefcount, -1);
      if (workers_ > 0 && gone >= workers_ && left <= 0) file_.remove();
    });
  }

  // Waiting, with mutex_ held but not the file's lock.

  void wait_locked(std::unique_lock<std::mutex>& lock, const Call& call) {
    KeyWait wait(core_);
    if (core_.wait(wait, call.keys)) return;
    if (await(lock, call, [&] { return wait.is_over(); })) return core_.settle(wait);
    Keys missing;
    for (const std::string& key : call.keys)
      if (!core_.check({key})) missing.push_back(key);
    throw wait_timeout(call.budget, call.keys, missing, name());
  }

  /// False at the deadline. One of the threads that wait watches the file for all; when it leaves,
  /// another takes its place.
  bool await(std::unique_lock<std::mutex>& lock, const Call& call,
             const std::function<bool()>& done) {
    while (!done()) {
      if (call.deadline.expired()) return false;
      if (!watched_) {
        watch_for_all(lock, call);
      } else if (call.deadline.is_never()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, call.deadline.when());
      }
    }
    return true;
  }

  /// Returns after a change, or without one. The change is read before another thread may watch,
  /// because the kernel reports each change once.
  void watch_for_all(std::unique_lock<std::mutex>& lock, const Call& call) {
    watched_ = true;
    struct Leave {
      FileStore* store;
      ~Leave() {
        store->watched_ = false;
        store->changed_.notify_all();
      }
    } at_the_end{this};
    if (watch_) {
      lock.unlock();
      watch_->await(call.deadline);
      lock.lock();
    } else {
      watch_.emplace(file_.fd(), file_.is_on_network() ? FileWatch::Tells::own_changes
                                                       : FileWatch::Tells::every_change);
    }
    try {
      catch_up(lock, call);
    } catch (const base::Error&) {
      watch_.reset();  // a new one begins with reading what has come
      throw;
    }
  }

  const int workers_;
  std::mutex mutex_;
  StoreFile file_;
  StoreCore core_;
  std::optional<FileWatch> watch_;  ///< from the first wait on
  bool watched_ = false;            ///< a thread is in watch_for_all()
  std::condition_variable changed_;
  std::condition_variable file_lock_pause_;  ///< never notified: only its time passes
};

}  // namespace

std::shared_ptr<Store> open_file_store(const FileStoreOptions& options) {
  return std::make_shared<FileStore>(options);
}

}  // namespace dtrun::rendezvous
