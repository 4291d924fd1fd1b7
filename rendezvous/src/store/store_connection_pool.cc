#include "store/store_connection_pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;

constexpr std::size_t kMostIdle = 8;

}  // namespace

StoreConnectionPool::StoreConnectionPool(const TcpStoreOptions& options)
    : options_(options),
      name_(base::HostPort{options.host, options.port}.to_string()),
      current_(StoreConnection::open(options_, Deadline::after(options.connect_timeout))) {}

void StoreConnectionPool::give_up(const StoreLost& error) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = error;
  // All of them: nobody takes the connection, so nobody would wake the next.
  current_free_.notify_all();
}

base::Error StoreConnectionPool::lost_earlier(const base::Error& error) const {
  return StoreLost(error.code(), error.summary(), error.why() + " (at an earlier operation)",
                   error.remedy());
}

std::unique_ptr<StoreConnection> StoreConnectionPool::take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return !current_taken_ || lost_; };
  if (deadline.is_never()) {
    current_free_.wait(lock, over);
  } else if (!current_free_.wait_until(lock, deadline.when(), over)) {
    throw Unanswered(base::ErrorCode::kTimeout,
                     fmt::format("the store at {} does not answer", name_),
                     "another thread of this process has been waiting for its answer all the time");
  }
  if (lost_) throw lost_earlier(*lost_);
  current_taken_ = true;
  if (current_) return std::move(current_);
  if (!idle_.empty()) {
    std::unique_ptr<StoreConnection> connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }
  lock.unlock();
  try {
    return open_another(deadline);
  } catch (...) {
    step_aside();
    throw;
  }
}

std::unique_ptr<StoreConnection> StoreConnectionPool::open_another(Deadline deadline) {
  auto connection = StoreConnection::open_another(options_, deadline);
  const std::lock_guard lock(mutex_);
  if (witness_ && witness_->has_ended() && !lost_) {
    lost_ = StoreLost(base::ErrorCode::kConnection, fmt::format("lost the store at {}", name_),
                      "another one has taken its place since, without its keys",
                      "the process that held it has probably been started again: see its log");
    current_free_.notify_all();
  }
  if (lost_) throw StoreLost(*lost_);
  return connection;
}

void StoreConnectionPool::keep_as_witness(std::unique_ptr<StoreConnection> connection) {
  if (connection->has_ended()) return;
  const std::lock_guard lock(mutex_);
  witness_ = std::move(connection);
}

void StoreConnectionPool::step_aside() {
  const std::lock_guard lock(mutex_);
  current_taken_ = false;
  current_free_.notify_one();
}

// In one step: were the right to be current freed before the connection is back, another thread's
// question could overtake this one's write.
void StoreConnectionPool::give_back(std::unique_ptr<StoreConnection> connection, Place place) {
  const std::lock_guard lock(mutex_);
  if (place == Place::kCurrent) {
    current_taken_ = false;
    current_ = std::move(connection);
    current_free_.notify_one();
  } else if (!current_ && !current_taken_) {
    current_ = std::move(connection);
  } else if (connection && idle_.size() < kMostIdle) {
    idle_.push_back(std::move(connection));
  }
}

StoreConnectionPool::Lease::Lease(StoreConnectionPool& pool, Deadline deadline)
    : pool_(pool), connection_(pool.take(deadline)) {}

StoreConnectionPool::Lease::~Lease() {
  if (!in_step_ && place_ == Place::kCurrent) pool_.keep_as_witness(std::move(connection_));
  if (!in_step_) connection_.reset();
  pool_.give_back(std::move(connection_), place_);
}

void StoreConnectionPool::Lease::step_aside() {
  DT_CHECK(!connection_->has_unseen_writes());
  if (place_ == Place::kCurrent) pool_.step_aside();
  place_ = Place::kAside;
  in_step_ = false;
}

}  // namespace dtrun::rendezvous
