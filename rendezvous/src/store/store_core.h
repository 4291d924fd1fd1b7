// StoreCore: what a store knows and who waits for what; no sockets, clock or threads. HashStore and
// TcpStoreServer both stand on it, so that they cannot mean different things.
//
// Semantics are those of PyTorch's libuv server, repaired where it errs: compare_set wakes only
// when it stored; a queue's wake that its receiver cannot use goes on to the next one.
//
// Not thread-safe: the owner serialises. Waiters are borrowed; each must be cancelled before it
// dies. Dropping a waiter costs its own registrations, however many others wait. Values may be held
// on to, but not beyond the core's life.
//
// All that makes it hold more claims that of its memory first, and throws StoreFull, with nothing
// changed, where that has no room. What takes away needs none.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/store_bytes.h"
#include "store/store_memory.h"

namespace dtrun::rendezvous {

class StoreCore;
class Waiter;

/// A value as it was when it was asked for, whatever comes after it since. Shared, so that one read
/// by a thousand clients exists once; charged to the core's memory for as long as anybody holds it:
/// also one that was overwritten while a slow reader is still being sent it.
class Value {
 public:
  Value() = default;
  explicit Value(std::shared_ptr<const StoreBytes> bytes)
      : bytes_(std::move(bytes)), size_(bytes_ ? bytes_->size() : 0) {}

  /// There is one.
  explicit operator bool() const { return bytes_ != nullptr; }
  std::size_t size() const { return size_; }
  /// Valid until the core changes.
  std::string_view operator*() const { return bytes_->view().substr(0, size_); }

 private:
  std::shared_ptr<const StoreBytes> bytes_;
  std::size_t size_ = 0;
};

/// A part of some bytes that are kept anyhow: as a value it takes their place, without a copy.
struct KeptPart {
  StoreBytes& bytes;
  std::string_view part;
};

struct WaitLink;
/// The waiters of one key, in order of arrival; an intrusive list.
struct WaitList {
  WaitLink* first = nullptr;
  WaitLink* last = nullptr;
  bool empty() const { return first == nullptr; }
};

struct StoreEntry {
  using Queue = std::list<std::shared_ptr<StoreBytes>>;

  const std::string* key = nullptr;   ///< the map's
  std::shared_ptr<StoreBytes> value;  ///< null: no such key
  std::unique_ptr<Queue> queue;       ///< null or not empty
  WaitList waiters;                   ///< of wait(): any arrival releases them
  WaitList barrier_waiters;           ///< of barrier(): not released by other arrivals
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
  std::unique_ptr<std::string> granted_queue_;  ///< released by a push, and nothing asked since
};

/// A counter's text and a number to add. nullopt: the text is no number, as C's strtoll reads it,
/// or the sum does not fit.
std::optional<std::int64_t> counter_sum(std::string_view text, std::int64_t delta);

class StoreCore {
 public:
  /// The memory of an entry, and of an element of a queue, without their texts and with the
  /// allocator's overhead: measured as the resident memory of a million.
  static constexpr std::size_t kEntryBytes = 256;
  static constexpr std::size_t kElementBytes = 128;

  explicit StoreCore(std::size_t most_bytes = std::numeric_limits<std::size_t>::max())
      : memory_(most_bytes) {}
  StoreCore(const StoreCore&) = delete;
  StoreCore& operator=(const StoreCore&) = delete;

  StoreMemory& memory() { return memory_; }
  const StoreMemory& memory() const { return memory_; }
  /// Forgets everything. Nobody may be waiting.
  void clear();

  void set(std::string_view key, std::string_view value);
  /// `key` may lie in the same bytes.
  void set(std::string_view key, KeptPart value);
  /// All of them or, with StoreFull, none.
  void multi_set(std::span<const std::string_view> keys, std::span<const std::string_view> values);
  /// Nothing when there is none.
  Value get(std::string_view key) const;
  /// nullopt, and nothing changed: see counter_sum().
  std::optional<std::int64_t> add(std::string_view key, std::int64_t delta);
  /// The answer of Store::compare_set.
  Value compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  bool check(std::span<const std::string_view> keys) const;
  bool check(const std::vector<std::string>& keys) const;
  bool remove(std::string_view key);
  void append(std::string_view key, std::string_view value);
  std::size_t key_count() const { return key_count_; }
  std::vector<std::string> list_keys() const;
  /// Calls `visit` with each key, in no order.
  template <typename Visit>
  void each_key(Visit visit) const {
    for (const auto& [key, entry] : entries_)
      if (entry.value) visit(std::string_view(key));
  }

  void queue_push(std::string_view key, std::string_view value);
  void queue_push(std::string_view key, KeptPart value);
  /// Nothing when the queue is empty; so queue_pop().
  Value queue_front(std::string_view key) const;
  Value queue_pop(std::string_view key);
  std::size_t queue_length(std::string_view key) const;

  /// True: all there already. False: the waiter is registered and will be released once each
  /// missing key has been set, even if deleted again since. Replaces what it waited for before.
  bool wait(Waiter& waiter, std::span<const std::string_view> keys);
  bool wait(Waiter& waiter, const std::vector<std::string>& keys);
  enum class Barrier { kPassed, kWaiting, kNotANumber };
  Barrier barrier(Waiter& waiter, std::string_view key, std::int64_t world);
  /// Drops its waits; a queue's wake that it has not used goes to the next waiter.
  void cancel(Waiter& waiter);
  /// The waiter acts on its release: from now on the wake counts as used.
  void settle(Waiter& waiter) { waiter.granted_queue_.reset(); }

 private:
  // Found by any text, without making a std::string of it.
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  using Entries = std::unordered_map<std::string, StoreEntry, TextHash, std::equal_to<>>;

  StoreEntry& entry_of(std::string_view key);
  const StoreEntry* find(std::string_view key) const;
  bool is_there(std::string_view key) const;
  void charge(std::size_t bytes);
  void discharge(std::size_t bytes);
  template <typename Change>
  auto change_entry(std::string_view key, Change change);
  void store(StoreEntry& entry, std::string_view value);
  void store(StoreEntry& entry, KeptPart value);
  void replace(StoreEntry& entry, std::shared_ptr<StoreBytes> value);
  template <typename Text>
  void set_any(std::string_view key, Text value);
  template <typename Text>
  void push_any(std::string_view key, Text value);
  std::optional<std::int64_t> count_up(StoreEntry& entry, std::int64_t delta);
  Barrier arrive(Waiter& waiter, StoreEntry& entry, std::int64_t world);
  void make_links(Waiter& waiter, std::size_t count);
  void forget_links(Waiter& waiter);
  void drop_waits(Waiter& waiter);
  void release_all(WaitList& list);
  /// Returns the waiter if this was the last thing it waited for.
  Waiter* release_first(WaitList& list);
  void wake_one_for_queue(StoreEntry& entry);
  void drop_if_empty(StoreEntry& entry);

  StoreMemory memory_;  // outlives the values
  Entries entries_;
  std::size_t key_count_ = 0;
  std::size_t entry_bytes_ = 0;  // of memory_, without the values' texts
};

}  // namespace dtrun::rendezvous
