// StoreConnection: one socket to a TCP store, opened and proved; requests out, replies in. Whoever
// uses it keeps requests and replies in step; after any Error but a plain wait timeout it must be
// thrown away. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/unique_fd.h"
#include "store_protocol.h"

namespace dtrun::rendezvous {

/// kTimeout: the store has not answered, or not taken a request, by the deadline.
class Unanswered : public base::Error {
 public:
  using Error::Error;
};

class StoreConnection {
 public:
  /// Connects, sends VALIDATE and makes one round trip; all of it again until it succeeds or the
  /// deadline passes, because a socket may connect to a backlog that nobody serves.
  /// @throws Error kConnection; kProtocol when what answers is no store
  static std::unique_ptr<StoreConnection> open(const std::string& host, std::uint16_t port,
                                               base::Deadline deadline);

  /// Sends a request. @throws Error kConnection, Unanswered; so the reads
  void send(const std::string& request, base::Deadline deadline);
  std::uint8_t read_u8(base::Deadline deadline);
  std::int64_t read_i64(base::Deadline deadline);
  /// @throws also Error kProtocol when its length cannot be meant
  std::string read_text(base::Deadline deadline);

  /// Requests without reply were sent after the last reply: the server may not have seen them yet.
  bool has_unseen_writes() const { return has_unseen_writes_; }
  void set_unseen_writes() { has_unseen_writes_ = true; }

 private:
  StoreConnection(base::UniqueFd fd, std::string store)
      : fd_(std::move(fd)), store_(std::move(store)) {}
  static std::unique_ptr<StoreConnection> attempt(const std::string& host, std::uint16_t port,
                                                  StoreOp probe, base::Deadline deadline);
  void prove(StoreOp probe, base::Deadline deadline);
  void read(void* data, std::size_t size, base::Deadline deadline);
  std::size_t receive(void* data, std::size_t size, base::Deadline deadline);

  base::UniqueFd fd_;
  std::string store_;  // host:port
  char buffer_[4096];
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool has_unseen_writes_ = false;
};

}  // namespace dtrun::rendezvous
