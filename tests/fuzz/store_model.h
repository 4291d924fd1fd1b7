// A second, naive implementation of the store's server side, written from docs/protocols.md and not
// from the first one: it decodes every request from its first byte again and again, keeps its keys
// in ordered maps and its waiters in one list. What it would answer is what the real one must
// answer. Used by the fuzz targets; slow on purpose.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::fuzz {

/// By PyTorch's modern numbers; 255 is the legacy WATCH_KEY.
enum ModelOp : int {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLength,
  kListKeys,
  kBarrier,
  kModelOps,
  kWatchKey = 255,
};

enum class ModelDialect { kModern, kTorch19To20, kTorch21 };

struct ModelLimits {
  std::uint64_t key_bytes = 8 << 10;
  std::uint64_t value_bytes = 8 << 20;
  std::uint64_t keys = 1 << 20;
};

struct ModelRequest {
  int op = 0;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;
};

struct Decoded {
  enum Status { kNeedsMore, kComplete, kBad } status = kNeedsMore;
  ModelRequest request;
  std::size_t size = 0;  ///< of a complete request
};

/// The first request of `bytes`.
Decoded decode(ModelDialect dialect, std::string_view bytes, const ModelLimits& limits);
/// Empty where the dialect has no such operation.
std::string encode(ModelDialect dialect, const ModelRequest& request);

class StoreModel {
 public:
  StoreModel(std::size_t clients, const ModelLimits& limits, ModelDialect legacy)
      : limits_(limits), legacy_(legacy), clients_(clients) {}

  struct Client {
    enum State { kOpening, kServing, kAgent, kFailed } state = kOpening;
    ModelDialect dialect = ModelDialect::kModern;
    std::string input;
    std::string output;              ///< the caller takes it
    std::vector<std::size_t> lists;  ///< where in output LIST_KEYS answers stand: in any order
    std::size_t missing = 0;
    std::string granted;  ///< a queue's wake that it has not used
    bool is_granted = false;
  };
  Client& client(std::size_t who) { return clients_[who]; }
  void receive(std::size_t who, std::string_view bytes);
  /// It is gone, and another one takes its number.
  void replace(std::size_t who);
  std::size_t key_count() const { return values_.size(); }
  /// Of all keys, values and elements of queues.
  std::size_t text_bytes() const;

 private:
  struct Wait {
    std::size_t who;
    std::string key;
    bool is_barrier;
  };
  void open(Client& client);
  void execute(std::size_t who, const ModelRequest& request);
  void execute_on_key(std::size_t who, const ModelRequest& request);
  void execute_on_queue(std::size_t who, const ModelRequest& request);
  void wait(std::size_t who, const std::vector<std::string>& keys);
  void barrier(std::size_t who, const std::string& key, std::int64_t world);
  void list_keys(Client& client);
  void set(const std::string& key, const std::string& value);
  bool add(const std::string& key, std::int64_t delta, std::int64_t& sum);
  bool is_there(const std::string& key) const { return values_.count(key) || queues_.count(key); }
  std::string value_or_nothing(const std::string& key) const;
  enum class Waits { kPlain, kBarrier, kBoth };
  void release(const std::string& key, Waits which);
  /// True when that was the last thing it waited for.
  bool release_one(std::list<Wait>::iterator place);
  void wake_one_for_queue(const std::string& key);
  void drop_waits(std::size_t who);
  void cancel(std::size_t who);

  const ModelLimits limits_;
  const ModelDialect legacy_;
  std::vector<Client> clients_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;  // none is empty
  std::list<Wait> waits_;                                  // in order of arrival
};

}  // namespace dtrun::fuzz
