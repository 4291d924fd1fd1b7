// Store: the key-value service by which processes find one another, with the operations and
// meanings of torch.distributed's Store. Keys and values are bytes; counters are ASCII decimals.
// Implementations: TcpStore (tcp_store.h), FileStore (file_store.h), HashStore (hash_store.h),
// PrefixStore (prefix_store.h).
// Thread-safe: every implementation may be called from several threads at once; a blocked wait() of
// one thread holds up no other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/base/deadline.h"

namespace dtrun::rendezvous {

class Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, std::string_view value) = 0;
  /// Waits until the key exists. @throws Error kTimeout naming the key and how long
  virtual std::string get(const std::string& key, base::Deadline deadline) = 0;
  /// The value now, nullopt when there is none.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  /// Adds to an ASCII decimal (missing = 0) and returns the new value.
  /// @throws Error kProtocol when the value is no number
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
  /// Missing and expected empty, or present and equal: stores desired and returns it. Present and
  /// different: returns the current value. Missing and expected not empty: stores nothing, returns
  /// expected (as PyTorch).
  virtual std::string compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) = 0;
  /// True when all keys exist.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// Waits until all keys have been set. @throws Error kTimeout naming the missing keys
  virtual void wait(const std::vector<std::string>& keys, base::Deadline deadline) = 0;
  virtual bool delete_key(const std::string& key) = 0;
  /// How many keys the whole store holds, all prefixes and the store's own included; queues are not
  /// counted.
  virtual std::int64_t num_keys() = 0;
  virtual void append(const std::string& key, std::string_view value) = 0;
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                             base::Deadline deadline) = 0;
  virtual void multi_set(const std::vector<std::pair<std::string, std::string>>& pairs) = 0;
  virtual void queue_push(const std::string& key, std::string_view value) = 0;
  /// Waits for an element. @throws Error kTimeout
  virtual std::string queue_pop(const std::string& key, base::Deadline deadline) = 0;
  virtual std::int64_t queue_len(const std::string& key) = 0;
  virtual std::vector<std::string> list_keys() = 0;
  /// Returns when `world` callers have come to this key. Keys are for one use. @throws Error
  /// kTimeout
  virtual void barrier(const std::string& key, std::int64_t world, base::Deadline deadline) = 0;
};

}  // namespace dtrun::rendezvous
