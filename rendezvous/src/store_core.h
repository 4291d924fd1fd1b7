// StoreCore: what a store knows and who waits for what; no sockets, clock or threads. HashStore and
// TcpStoreServer both stand on it, so that they cannot mean different things.
//
// Semantics are those of PyTorch's libuv server, repaired where it errs: compare_set wakes only
// when it stored; a queue's wake that its receiver cannot use goes on to the next one.
//
// Not thread-safe: the owner serialises. Waiters are borrowed; each must be cancelled before it
// dies. Dropping a waiter costs its own registrations, however many others wait.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dtrun::rendezvous {

class StoreCore;
class Waiter;

/// Shared, so that a value read by a thousand clients exists once.
using Value = std::shared_ptr<const std::string>;

struct WaitLink;
/// The waiters of one key, in order of arrival; an intrusive list.
struct WaitList {
  WaitLink* first = nullptr;
  WaitLink* last = nullptr;
  bool empty() const { return first == nullptr; }
};

struct StoreEntry {
  const std::string* key = nullptr;          ///< the map's
  std::shared_ptr<std::string> value;        ///< null: no such key
  std::unique_ptr<std::deque<Value>> queue;  ///< null or not empty
  WaitList waiters;                          ///< of wait(): any arrival releases them
  WaitList barrier_waiters;                  ///< of barrier(): not released by other arrivals
};

/// One waiter's place in one list.
struct WaitLink {
  Waiter* waiter = nullptr;
  StoreEntry* entry = nullptr;
  WaitList* list = nullptr;  ///< null once released
  WaitLink* previous = nullptr;
  WaitLink* next = nullptr;
};

/// Somebody who may wait: a connection of the server, a thread at a HashStore.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  virtual ~Waiter() = default;

  bool waiting() const { return missing_ > 0; }

 private:
  friend class StoreCore;
  /// All that it waited for is there. Called from inside a StoreCore call: must not call back.
  virtual void released() = 0;

  std::size_t missing_ = 0;
  std::vector<WaitLink> links_;
  std::optional<std::string> granted_queue_;  ///< released by a push, and nothing asked since
};

/// A counter's text and a number to add. nullopt: the text is no number, as C's strtoll reads it,
/// or the sum does not fit.
std::optional<std::int64_t> counter_sum(const std::string& text, std::int64_t delta);

class StoreCore {
 public:
  StoreCore() = default;
  StoreCore(const StoreCore&) = delete;
  StoreCore& operator=(const StoreCore&) = delete;

  void set(const std::string& key, std::string value);
  /// Null when there is none.
  Value get(const std::string& key) const;
  /// nullopt, and nothing changed: see counter_sum().
  std::optional<std::int64_t> add(const std::string& key, std::int64_t delta);
  /// The answer of Store::compare_set.
  Value compare_set(const std::string& key, std::string expected, std::string desired);
  bool check(const std::vector<std::string>& keys) const;
  bool remove(const std::string& key);
  void append(const std::string& key, std::string_view value);
  std::size_t key_count() const { return key_count_; }
  std::vector<std::string> list_keys() const;

  void queue_push(const std::string& key, std::string value);
  /// Null when the queue is empty; so queue_pop().
  Value queue_front(const std::string& key) const;
  Value queue_pop(const std::string& key);
  std::size_t queue_length(const std::string& key) const;

  /// True: all there already. False: the waiter is registered and will be released once each
  /// missing key has been set, even if deleted again since. Replaces what it waited for before.
  bool wait(Waiter& waiter, const std::vector<std::string>& keys);
  enum class Barrier { kPassed, kWaiting, kNotANumber };
  Barrier barrier(Waiter& waiter, const std::string& key, std::int64_t world);
  /// Drops its waits; a queue's wake that it has not used goes to the next waiter.
  void cancel(Waiter& waiter);
  /// The waiter acts on its release: from now on the wake counts as used.
  void settle(Waiter& waiter) { waiter.granted_queue_.reset(); }

 private:
  StoreEntry& entry_of(const std::string& key);
  const StoreEntry* find(const std::string& key) const;
  bool is_there(const std::string& key) const;
  void store(StoreEntry& entry, std::string value);
  std::optional<std::int64_t> count_up(StoreEntry& entry, std::int64_t delta);
  void drop_waits(Waiter& waiter);
  void release_all(WaitList& list);
  /// Returns the waiter if this was the last thing it waited for.
  Waiter* release_first(WaitList& list);
  void wake_one_for_queue(StoreEntry& entry);
  void drop_if_empty(StoreEntry& entry);

  std::unordered_map<std::string, StoreEntry> entries_;
  std::size_t key_count_ = 0;
};

}  // namespace dtrun::rendezvous
