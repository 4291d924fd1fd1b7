// StoreConnection: one socket to a TCP store, opened and proved; requests out, replies in. Whoever
// uses it keeps requests and replies in step; after any Error but a plain wait timeout it must be
// thrown away. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/tcp_store.h"
#include "store/reply_reader.h"
#include "store/store_protocol.h"

namespace dtrun::rendezvous {

/// kTimeout: the store has not answered, or not taken a request, by the deadline.
class Unanswered : public base::Error {
 public:
  using Error::Error;
};

/// kConnection: a connection that served has broken.
class StoreLost : public base::Error {
 public:
  using Error::Error;
};

class StoreConnection {
 public:
  /// Connects, proves the token where there is one, sends VALIDATE and makes one round trip; all of
  /// it again, with jittered pauses, until it succeeds or the deadline passes, because a socket may
  /// connect to a backlog that nobody serves.
  /// @throws Error kConnection naming host, port, time and last cause; kProtocol when what answers
  /// is no store, or none with this token
  static std::unique_ptr<StoreConnection> open(const TcpStoreOptions& options,
                                               base::Deadline deadline);
  /// Opens one more connection to a store that has been reached before. A store that refuses is
  /// gone. A store that closes may be full, and is asked again for some seconds. A silent store is
  /// waited for until the deadline. @throws Error kConnection, kProtocol as open(); Unanswered
  static std::unique_ptr<StoreConnection> open_another(const TcpStoreOptions& options,
                                                       base::Deadline deadline);
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  /// Sends a request. @throws StoreLost, Unanswered; so the reads, and Error kProtocol for what no
  /// store answers
  void send(const std::string& request, base::Deadline deadline);
  /// Before a request whose answer may be long in coming: its arrival is acknowledged together with
  /// the next request, not by a packet of its own. That packet is a third of what it costs the
  /// store to release one of thousands (bench/store_bench).
  void expect_a_long_wait();
  std::uint8_t read_flag(base::Deadline deadline) { return seen(replies_.read_flag(deadline)); }
  std::int64_t read_i64(base::Deadline deadline) { return seen(replies_.read_i64(deadline)); }
  std::int64_t read_count(base::Deadline deadline) { return seen(replies_.read_count(deadline)); }
  std::string read_text(base::Deadline deadline) { return seen(replies_.read_text(deadline)); }
  std::vector<std::string> read_list(base::Deadline deadline) {
    return seen(replies_.read_list(deadline));
  }

  /// Requests without reply were sent after the last reply: the server may not have seen them yet.
  bool has_unseen_writes() const { return has_unseen_writes_; }
  void set_unseen_writes() { has_unseen_writes_ = true; }
  /// The store has closed it, or is known to be gone.
  bool has_ended() const;

 private:
  StoreConnection(base::UniqueFd fd, const TcpStoreOptions& options);
  static std::unique_ptr<StoreConnection> attempt(const TcpStoreOptions& options, base::UniqueFd fd,
                                                  StoreOp probe, base::Deadline deadline);
  void prove(StoreOp probe, base::Deadline deadline);
  void prove_token(const Token& token, base::Deadline deadline);
  std::size_t receive(char* data, std::size_t size, base::Deadline deadline);
  StoreLost lost(int error_number) const;

  template <typename Value>
  Value seen(Value value) {
    has_unseen_writes_ = false;
    return value;
  }

  base::UniqueFd fd_;
  std::string store_;  // host:port
  base::Deadline::Duration lost_after_;
  ReplyReader replies_;
  bool has_unseen_writes_ = false;
};

}  // namespace dtrun::rendezvous
