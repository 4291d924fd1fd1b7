// Store: the key-value service by which processes find one another, with the operations and
// meanings of torch.distributed's Store. Keys and values are bytes; counters are ASCII decimals.
// Implementations: TcpStore (tcp_store.h), FileStore (file_store.h), EtcdStore (etcd_store.h),
// HashStore (hash_store.h), PrefixStore (prefix_store.h). docs/store.md says what each offers.
// Thread-safe: every implementation may be called from several threads at once; a blocked wait() of
// one thread holds up no other.
//
// Every operation takes a deadline; without one it has timeout() from the call on. At the deadline
// it throws Error kTimeout, which names the keys, the store and how long it took; the change may
// have happened all the same. With a deadline that has passed it does what needs nobody else, and
// does not wait; the store has a second to answer even then.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/base/deadline.h"

namespace dtrun::rendezvous {

class Store {
 public:
  using Keys = std::vector<std::string>;
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  virtual ~Store() = default;

  virtual void set(const std::string& key, std::string_view value, base::Deadline deadline) = 0;
  /// Waits until the key exists.
  virtual std::string get(const std::string& key, base::Deadline deadline) = 0;
  /// The value now, nullopt when there is none.
  virtual std::optional<std::string> try_get(const std::string& key, base::Deadline deadline) = 0;
  /// Adds to an ASCII decimal (missing = 0) and returns the new value.
  /// @throws Error kProtocol when the value is no number
  virtual std::int64_t add(const std::string& key, std::int64_t delta, base::Deadline deadline) = 0;
  /// Missing and expected empty, or present and equal: stores desired and returns it. Present and
  /// different: returns the current value. Missing and expected not empty: stores nothing, returns
  /// expected (as PyTorch).
  virtual std::string compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired, base::Deadline deadline) = 0;
  /// True when all keys exist.
  virtual bool check(const Keys& keys, base::Deadline deadline) = 0;
  /// Waits until all keys have been set. @throws Error kTimeout naming the missing keys
  virtual void wait(const Keys& keys, base::Deadline deadline) = 0;
  virtual bool delete_key(const std::string& key, base::Deadline deadline) = 0;
  /// How many keys the whole store holds, all prefixes and the store's own included; queues are not
  /// counted.
  virtual std::int64_t num_keys(base::Deadline deadline) = 0;
  virtual void append(const std::string& key, std::string_view value, base::Deadline deadline) = 0;
  /// Waits until all keys exist.
  virtual Keys multi_get(const Keys& keys, base::Deadline deadline) = 0;
  /// One after the other, in their order.
  virtual void multi_set(const Pairs& pairs, base::Deadline deadline) = 0;
  virtual void queue_push(const std::string& key, std::string_view value,
                          base::Deadline deadline) = 0;
  /// Waits for an element.
  virtual std::string queue_pop(const std::string& key, base::Deadline deadline) = 0;
  virtual std::int64_t queue_len(const std::string& key, base::Deadline deadline) = 0;
  virtual Keys list_keys(base::Deadline deadline) = 0;
  /// Returns when `world` callers have come to this key. A key can be used once.
  virtual void barrier(const std::string& key, std::int64_t world, base::Deadline deadline) = 0;

  // The same with a deadline of timeout() from the call on.
  void set(const std::string& key, std::string_view value) { set(key, value, in_time()); }
  std::string get(const std::string& key) { return get(key, in_time()); }
  std::optional<std::string> try_get(const std::string& key) { return try_get(key, in_time()); }
  std::int64_t add(const std::string& key, std::int64_t delta) {
    return add(key, delta, in_time());
  }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) {
    return compare_set(key, expected, desired, in_time());
  }
  bool check(const Keys& keys) { return check(keys, in_time()); }
  void wait(const Keys& keys) { wait(keys, in_time()); }
  bool delete_key(const std::string& key) { return delete_key(key, in_time()); }
  std::int64_t num_keys() { return num_keys(in_time()); }
  void append(const std::string& key, std::string_view value) { append(key, value, in_time()); }
  Keys multi_get(const Keys& keys) { return multi_get(keys, in_time()); }
  void multi_set(const Pairs& pairs) { multi_set(pairs, in_time()); }
  void queue_push(const std::string& key, std::string_view value) {
    queue_push(key, value, in_time());
  }
  std::string queue_pop(const std::string& key) { return queue_pop(key, in_time()); }
  std::int64_t queue_len(const std::string& key) { return queue_len(key, in_time()); }
  Keys list_keys() { return list_keys(in_time()); }
  void barrier(const std::string& key, std::int64_t world) { barrier(key, world, in_time()); }

  /// Of calls without a deadline; 300 s unless set, as in PyTorch. A PrefixStore has its store's.
  virtual base::Deadline::Duration timeout() const { return timeout_.load(); }
  virtual void set_timeout(base::Deadline::Duration timeout) { timeout_.store(timeout); }
  /// The store that a PrefixStore writes to; null for the other stores.
  virtual std::shared_ptr<Store> underlying_store() const { return nullptr; }

 private:
  base::Deadline in_time() const { return base::Deadline::after(timeout()); }

  std::atomic<base::Deadline::Duration> timeout_{std::chrono::seconds(300)};
};

}  // namespace dtrun::rendezvous
