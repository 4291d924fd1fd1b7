// StoreSession: one client's conversation with a StoreCore: its dialect, its requests, its replies.
// Bytes in, bytes out; the sockets are the server's. Owned by one connection; not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/output_queue.h"
#include "store/request_parser.h"
#include "store/store_core.h"
#include "store/store_protocol.h"

namespace dtrun::rendezvous {

class StoreSession;

/// What all sessions of one server share: the store, what is allowed, and the scratch that they use
/// one after the other. Owned by the server; not thread-safe.
struct StoreService {
  struct Settings {
    RequestLimits limits;
    /// The dialect of clients that do not begin with VALIDATE; nullopt: they are refused.
    std::optional<StoreDialect> legacy = StoreDialect::kTorch19To20;
    /// The limit of all keys, values, queues, waits, half requests and unsent answers together.
    std::size_t most_bytes = std::size_t{2} << 30;
  };

  StoreService() = default;
  explicit StoreService(const Settings& given) : settings(given), core(given.most_bytes) {}

  const Settings settings{};
  /// Beyond so many bytes of answers that a client has not read, its requests wait.
  const std::size_t most_output =
      std::clamp<std::size_t>(settings.most_bytes / 64, 4 << 10, 1 << 20);
  StoreCore core{settings.most_bytes};
  /// The sessions that have output because other sessions' requests have ended their waits.
  std::vector<StoreSession*> released;
  /// The one that is being served.
  Request request;
};

class StoreSession : public Waiter {
 public:
  /// Borrowed. A session that another one's request releases is added to its `released`.
  explicit StoreSession(StoreService& service);
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
  /// An agent's.
  const std::string& first_bytes() const { return held_; }
  const std::string& failure() const { return failure_; }

  /// It has shown that it speaks the protocol: the modern handshake, or a whole legacy request.
  bool established() const { return state_ == State::kServing && (!is_legacy() || has_executed_); }

  /// Answers all whole requests, as long as the client reads its answers and the store's memory
  /// lasts. Afterwards, what could be sent at once having been sent, call limit_memory().
  void receive(std::string_view bytes);
  /// Requests are held back: once output() is empty, call resume().
  bool has_unserved() const { return state_ == State::kServing && !held_.empty(); }
  void resume();
  /// Give it nothing more to receive() now.
  bool stalled() const { return output_.size() > service_.most_output || has_unserved(); }
  OutputQueue& output() { return output_; }
  /// It fails where the store holds too much and some of that is what it has not sent or served.
  void limit_memory();

 private:
  void released() override;
  void open(std::string_view bytes);
  void serve(std::string_view bytes);
  RequestParser::Status parse(std::string_view& bytes);
  void hold(std::string_view bytes);
  void execute(const Request& request);
  void answer(const Request& request);
  void answer_queue_op(const Request& request);
  void answer_barrier(const Request& request);
  std::optional<KeptPart> kept_value(const Request& request) const;
  void multi_get(std::span<const std::string_view> keys);
  void list_keys();
  void fail(std::string why);
  void fail_for_memory(std::string_view what);

  StoreService& service_;
  RequestParser parser_;
  OutputQueue output_;
  State state_ = State::kOpening;
  StoreDialect dialect_ = StoreDialect::kModern;
  bool silent_ = true;
  bool has_executed_ = false;
  // Bytes that came before the dialect was known or while too much output was pending, and all
  // bytes of an agent.
  std::string held_;
  MemoryCharge held_charge_;
  std::string failure_;
};

}  // namespace dtrun::rendezvous
