// StoreScript: a random conversation of a few clients with a store, step by step, for two servers
// at once. Pure: says what to send and in which form the answer comes, and is told who was
// released.
//
// What dtrun's server does otherwise than PyTorch's on purpose (docs/protocols.md) never happens:
// - BARRIER is not said: 2.11 closes on it;
// - no COMPARE_SET names a key that somebody waits for: one that stores nothing releases there;
// - a queue is waited for by one client at a time, alone, and is not pushed to again once a push
// has
//   released a waiter: there, the waiter is released twice, and a wake can be lost;
// - no counter comes near the limits of its type: beyond, the answer is undefined there;
// - no request comes before a whole VALIDATE, none names more keys than 131072;
// - who waits asks nothing but CANCEL_WAIT and PING, as PyTorch's client: the order of an answer
// and
//   of a release by the same request is not promised.
#pragma once

#include <cstddef>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace dtrun::conformance {

/// What answers a request.
enum class ReplyForm {
  kNone,
  kByte,
  kNumber,
  kText,
  kTexts,       ///< as many as Request::count says
  kList,        ///< a count and texts in any order
  kQueueFront,  ///< a number; if it is positive, a text
  kRelease,     ///< of a WAIT: nothing or a byte 0
  kCancel,      ///< a byte 1, perhaps after a byte 0
  kClosed,      ///< the end of the connection
};

struct ScriptRequest {
  std::string bytes;
  ReplyForm form = ReplyForm::kNone;
  std::size_t count = 0;
};

struct ScriptStep {
  std::size_t client = 0;
  bool reconnects = false;  ///< closes its connection and opens another, before all else
  std::vector<ScriptRequest> requests;
  std::vector<std::size_t> cuts;  ///< where their bytes, taken together, are cut; ascending
};

class StoreScript {
 public:
  static constexpr std::size_t kClients = 5;

  explicit StoreScript(unsigned seed) : random_(seed), prefix_("s" + std::to_string(seed) + "/") {}

  ScriptStep next();
  /// Of the last step and of every client that waited: it waits no more.
  void released(std::size_t client);
  bool waits(std::size_t client) const { return !waits_[client].empty(); }
  /// Leaves no key and no element of a queue behind.
  ScriptStep last();

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  std::string key();
  std::string value();
  std::string queue();
  bool is_awaited(const std::string& name) const;
  ScriptRequest request();
  ScriptRequest key_request(std::size_t kind);
  ScriptRequest queue_request();
  ScriptRequest fatal_request();
  ScriptRequest wait(std::size_t client);
  std::vector<std::string> keys(std::size_t most);

  std::mt19937 random_;
  const std::string prefix_;
  std::set<std::string> waits_[kClients];
  std::set<std::string> used_keys_;
  std::set<std::string> used_queues_;
  int queue_generation_[3] = {};
};

}  // namespace dtrun::conformance
