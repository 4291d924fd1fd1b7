// StoreConnectionPool: how the threads of one process share a store. One connection is current;
// every short operation uses it, so that a write without reply is seen by whatever the same program
// asks next. A wait steps aside with its connection (when nothing written on it is unseen) and the
// next operation takes an idle one or opens another. A program with one thread has one connection.
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/store_connection.h"

namespace dtrun::rendezvous {

class StoreConnectionPool {
 public:
  class Lease;

  /// Connects. @throws as StoreConnection::open
  explicit StoreConnectionPool(const TcpStoreOptions& options);

  /// The store is gone: from now on there are no leases, only this error. A new connection might
  /// find another store, an empty one, at the same address.
  void give_up(const StoreLost& error);

  /// host:port, for messages.
  const std::string& name() const { return name_; }

 private:
  enum class Place { kCurrent, kAside };

  std::unique_ptr<StoreConnection> take(base::Deadline deadline);
  std::unique_ptr<StoreConnection> open_another(base::Deadline deadline);
  base::Error lost_earlier(const base::Error& error) const;
  void step_aside();
  /// Null: it broke.
  void give_back(std::unique_ptr<StoreConnection> connection, Place place);

  /// A connection that is out of step and no longer of use, kept because its end shows the store's
  /// end. A connection that waits in the store is not kept, because it would block others there.
  void keep_as_witness(std::unique_ptr<StoreConnection> connection);

  const TcpStoreOptions options_;
  const std::string name_;
  std::mutex mutex_;
  std::condition_variable current_free_;
  // Guarded by mutex_:
  bool current_taken_ = false;
  std::unique_ptr<StoreConnection> current_;
  std::vector<std::unique_ptr<StoreConnection>> idle_;  // no unseen writes on them
  std::unique_ptr<StoreConnection> witness_;
  std::optional<StoreLost> lost_;
};

/// The right to use one connection. Without done() the connection is dropped in the end: what
/// stands on it is out of step.
class StoreConnectionPool::Lease {
 public:
  /// @throws Error kConnection, kTimeout
  Lease(StoreConnectionPool& pool, base::Deadline deadline);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  StoreConnection* operator->() { return connection_.get(); }
  /// More will be asked.
  void begin() { in_step_ = false; }
  /// All that was asked has been answered.
  void done() { in_step_ = true; }
  /// From here on this connection may block: others use another. It must have no unseen writes.
  void step_aside();

 private:
  StoreConnectionPool& pool_;
  std::unique_ptr<StoreConnection> connection_;
  Place place_ = Place::kCurrent;
  bool in_step_ = false;
};

}  // namespace dtrun::rendezvous
