// StoreSession: one client's conversation with a StoreCore: its dialect, its requests, its replies.
// Bytes in, bytes out; the sockets are the server's. Owned by one connection; not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "output_queue.h"
#include "request_parser.h"
#include "store_core.h"

namespace dtrun::rendezvous {

class StoreSession : public Waiter {
 public:
  struct Settings {
    RequestLimits limits;
    StoreDialect legacy = StoreDialect::kTorch19To20;
  };

  /// All borrowed. A session that another one's request releases is added to `released`.
  StoreSession(StoreCore& core, const Settings& settings, std::vector<StoreSession*>& released);
  ~StoreSession() override;

  enum class State {
    kOpening,  ///< nothing yet, or too little to know who it is
    kServing,
    kAgent,   ///< no store client: first_bytes() and the socket belong to another
    kFailed,  ///< close it; failure() says why
  };
  State state() const { return state_; }
  bool is_legacy() const { return dialect_ != StoreDialect::kModern; }
  /// No byte has come.
  bool silent() const { return silent_; }
  const std::string& first_bytes() const { return first_bytes_; }
  const std::string& failure() const { return failure_; }

  /// It has shown that it speaks the protocol: the modern handshake, or a whole legacy request.
  bool established() const { return state_ == State::kServing && (!is_legacy() || has_executed_); }

  /// Answers all whole requests, as long as the client reads its answers.
  void receive(std::string_view bytes);
  /// Requests are held back: once output() is empty, call resume().
  bool has_unserved() const { return !unserved_.empty(); }
  void resume();
  /// Give it nothing more to receive() now.
  bool stalled() const { return output_.size() > kMostOutput || has_unserved(); }
  OutputQueue& output() { return output_; }

 private:
  static constexpr std::size_t kMostOutput = 1 << 20;

  void released() override;
  void open(std::string_view bytes);
  void serve(std::string_view bytes);
  void execute(Request& request);
  void execute_queue_op(Request& request);
  void barrier(const Request& request);
  void list_keys();
  void fail(std::string why);

  StoreCore& core_;
  const Settings& settings_;
  std::vector<StoreSession*>& released_;
  RequestParser parser_;
  OutputQueue output_;
  State state_ = State::kOpening;
  StoreDialect dialect_ = StoreDialect::kModern;
  bool silent_ = true;
  bool has_executed_ = false;
  std::string first_bytes_;  // until the dialect is known; an agent's all
  std::string unserved_;     // arrived while too much output was pending
  std::string failure_;
};

}  // namespace dtrun::rendezvous
