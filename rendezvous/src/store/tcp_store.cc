// Each operation of Store as requests and replies on a leased connection. What no reply tells (an
// empty value or none, an operation that the server does not know) is found out by asking more.
#include "dtrun/rendezvous/tcp_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <span>
#include <type_traits>
#include <utility>

#include "dtrun/base/error.h"
#include "store/store_connection_pool.h"
#include "store/store_core.h"
#include "store/store_errors.h"
#include "wire/answer_deadline.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using Keys = Store::Keys;

constexpr std::size_t kMostKeysAskedOneByOne = 1024;

std::string wire_key(const std::string& key) {
  if (key.size() >= kMaxKeyBytes)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a key of {} bytes is too long for a store", key.size()),
                fmt::format("at most {} are allowed", kMaxKeyBytes - 1), "shorten the key");
  return "/" + key;
}

void demand_value(const std::string& key, std::string_view value) {
  if (value.size() > kMaxValueBytes)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the value of {} bytes for the key {} is too long for a store",
                            value.size(), key),
                fmt::format("at most {} are allowed", kMaxValueBytes),
                "split it over several keys; large data belongs into collectives");
}

std::string request_of(StoreOp op) {
  return std::string(1, static_cast<char>(op));
}

std::string request_of(StoreOp op, const std::string& key) {
  std::string request = request_of(op);
  append_text(request, wire_key(key));
  return request;
}

std::string request_of(StoreOp op, const std::string& key, std::string_view value) {
  demand_value(key, value);
  std::string request = request_of(op, key);
  append_text(request, value);
  return request;
}

std::string request_of(StoreOp op, std::span<const std::string> keys) {
  std::string request = request_of(op);
  append_number<std::uint64_t>(request, keys.size());
  for (const std::string& key : keys) append_text(request, wire_key(key));
  return request;
}

Keys wire_keys(std::span<const std::string> keys) {
  Keys result;
  for (const std::string& key : keys) result.push_back(wire_key(key));
  return result;
}

// A store has no other way to say that it cannot do this; who asked finds out.
bool may_close(StoreOp op) {
  return op == StoreOp::kAdd || op == StoreOp::kQueueLength || op == StoreOp::kListKeys;
}

// As many keys as one request may hold.
std::vector<std::span<const std::string>> batches(std::span<const std::string> keys) {
  std::vector<std::span<const std::string>> result;
  for (std::size_t begin = 0; begin < keys.size(); begin += kMaxKeysSent)
    result.push_back(keys.subspan(begin, std::min(kMaxKeysSent, keys.size() - begin)));
  return result;
}

// A text that no value equals by chance.
std::string unlikely_value() {
  std::random_device random;
  std::string text = "dtrun:absent:";
  for (int i = 0; i < 4; ++i) append_number<std::uint32_t>(text, random());
  return text;
}

class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options) : pool_(options) {}

  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    write(StoreOp::kSet, {&key, 1}, request_of(StoreOp::kSet, key, value), deadline);
  }
  void append(const std::string& key, std::string_view value, Deadline deadline) override {
    write(StoreOp::kAppend, {&key, 1}, request_of(StoreOp::kAppend, key, value), deadline);
  }
  void queue_push(const std::string& key, std::string_view value, Deadline deadline) override;
  void multi_set(const Pairs& pairs, Deadline deadline) override;

  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override;
  Keys multi_get(const Keys& keys, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t delta, Deadline deadline) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired, Deadline deadline) override;
  bool check(const Keys& keys, Deadline deadline) override;
  void wait(const Keys& keys, Deadline deadline) override;
  bool delete_key(const std::string& key, Deadline deadline) override;
  std::int64_t num_keys(Deadline deadline) override;
  std::string queue_pop(const std::string& key, Deadline deadline) override;
  std::int64_t queue_len(const std::string& key, Deadline deadline) override;
  Keys list_keys(Deadline deadline) override;
  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override;

 private:
  using Lease = StoreConnectionPool::Lease;
  using KeySpan = std::span<const std::string>;

  /// An operation, `action(lease)`, on a lease of its own. What the store leaves unanswered becomes
  /// an error that names the operation and its keys.
  template <typename Action>
  std::invoke_result_t<Action, Lease&> ask(StoreOp op, KeySpan keys, Deadline deadline,
                                           Action action);
  void write(StoreOp op, KeySpan keys, const std::string& request, Deadline deadline);
  std::int64_t ask_number(StoreOp op, KeySpan keys, const std::string& request, Deadline deadline);
  static bool ask_ready(Lease& lease, KeySpan keys, Deadline deadline);
  static std::string ask_value(Lease& lease, const std::string& key, Deadline deadline);
  static bool is_there(Lease& lease, const std::string& key, Deadline deadline);
  void wait_on(Lease& lease, KeySpan keys, Deadline deadline, Deadline::Duration budget);
  bool cancel_wait(Lease& lease, KeySpan keys, Deadline::Duration budget);
  Error wait_error(Lease& lease, KeySpan keys, Deadline::Duration budget);
  void demand_queues(Deadline deadline);
  Error unless_gone(StoreOp op, const StoreLost& error);
  std::string name() const { return "the store at " + pool_.name(); }

  StoreConnectionPool pool_;
  std::atomic<bool> has_queues_{false};  // false: not known yet
};

template <typename Action>
std::invoke_result_t<Action, TcpStore::Lease&> TcpStore::ask(StoreOp op, KeySpan keys,
                                                             Deadline deadline, Action action) {
  const auto begin = Deadline::Clock::now();
  try {
    Lease lease(pool_, answer_deadline(deadline));
    return action(lease);
  } catch (const Unanswered& silence) {
    throw answer_timeout(store_op_name(op), Deadline::Clock::now() - begin, wire_keys(keys),
                         silence.summary() + ": " + silence.why());
  } catch (const StoreLost& error) {
    if (!may_close(op)) pool_.give_up(error);
    throw;
  }
}

void TcpStore::write(StoreOp op, KeySpan keys, const std::string& request, Deadline deadline) {
  ask(op, keys, deadline, [&](Lease& lease) {
    lease->set_unseen_writes();
    lease->send(request, answer_deadline(deadline));
    lease.done();
  });
}

std::int64_t TcpStore::ask_number(StoreOp op, KeySpan keys, const std::string& request,
                                  Deadline deadline) {
  return ask(op, keys, deadline, [&](Lease& lease) {
    const Deadline answer = answer_deadline(deadline);
    lease->send(request, answer);
    const std::int64_t number = lease->read_i64(answer);
    lease.done();
    return number;
  });
}

bool TcpStore::ask_ready(Lease& lease, KeySpan keys, Deadline deadline) {
  lease->send(request_of(StoreOp::kCheck, keys), deadline);
  return lease->read_flag(deadline) == kReady;
}

std::string TcpStore::ask_value(Lease& lease, const std::string& key, Deadline deadline) {
  lease->send(request_of(StoreOp::kGet, key), deadline);
  return lease->read_text(deadline);
}

// GET answers a missing key like an empty value. A compare_set that cannot store tells them apart.
bool TcpStore::is_there(Lease& lease, const std::string& key, Deadline deadline) {
  const std::string absent = unlikely_value();
  std::string request = request_of(StoreOp::kCompareSet, key, absent);
  append_text(request, absent);
  lease->send(request, deadline);
  return lease->read_text(deadline) != absent;
}

// Returns with the lease in step; @throws Error kTimeout likewise.
void TcpStore::wait_on(Lease& lease, KeySpan keys, Deadline deadline, Deadline::Duration budget) {
  lease.begin();
  const Deadline answer = answer_deadline(deadline);
  // Others may only overtake this connection when nothing written on it is unseen. And a deadline
  // that has passed means: look, but do not wait.
  if ((lease->has_unseen_writes() || deadline.expired()) && ask_ready(lease, keys, answer))
    return lease.done();
  lease.step_aside();
  lease->expect_a_long_wait();
  lease->send(request_of(StoreOp::kWait, keys), answer);
  bool released = true;
  try {
    lease->read_flag(deadline);
  } catch (const Unanswered&) {
    released = false;
  }
  if (released || cancel_wait(lease, keys, budget)) return lease.done();
  const Error error = wait_error(lease, keys, budget);
  lease.done();
  throw error;
}

// True when the release crossed the cancel: two answers then, in that order.
bool TcpStore::cancel_wait(Lease& lease, KeySpan keys, Deadline::Duration budget) {
  try {
    const Deadline deadline = Deadline::after(kCourtesyBudget);
    lease->send(request_of(StoreOp::kCancelWait), deadline);
    if (lease->read_flag(deadline) == kWaitCanceled) return false;
    lease->read_flag(deadline);
    return true;
  } catch (const Unanswered& silence) {
    const Error timeout = wait_timeout(budget, wire_keys(keys), {});
    throw Error(ErrorCode::kTimeout, timeout.summary(),
                silence.summary() + " either: " + silence.why(),
                "look at the process that holds the store (the launcher, or rank 0)");
  }
}

Error TcpStore::wait_error(Lease& lease, KeySpan keys, Deadline::Duration budget) {
  const Keys all = wire_keys(keys);
  if (keys.size() == 1) return wait_timeout(budget, all, all, name());
  if (keys.size() > kMostKeysAskedOneByOne) return wait_timeout(budget, all, {}, name());
  const Deadline deadline = Deadline::after(kCourtesyBudget);
  std::string requests;
  for (const std::string& key : keys) requests += request_of(StoreOp::kCheck, {&key, 1});
  lease->send(requests, deadline);
  Keys missing;
  for (const std::string& key : all)
    if (lease->read_flag(deadline) == kNotReady) missing.push_back(key);
  return wait_timeout(budget, all, missing, name());
}

void TcpStore::multi_set(const Pairs& pairs, Deadline deadline) {
  std::string texts;
  Keys keys;
  const auto send = [&] {
    std::string request = request_of(StoreOp::kMultiSet);
    append_number<std::int64_t>(request, static_cast<std::int64_t>(keys.size()));
    write(StoreOp::kMultiSet, keys, request + texts, deadline);
    texts.clear();
    keys.clear();
  };
  for (const auto& [key, value] : pairs) {
    demand_value(key, value);
    append_text(texts, wire_key(key));
    append_text(texts, value);
    keys.push_back(key);
    if (keys.size() == kMaxKeysSent || texts.size() > kMaxRequestBytes / 4) send();
  }
  if (!keys.empty()) send();
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  return ask(StoreOp::kGet, {&key, 1}, deadline, [&](Lease& lease) {
    while (true) {
      wait_on(lease, {&key, 1}, deadline, budget);
      lease.begin();
      const Deadline answer = answer_deadline(deadline);
      std::string value = ask_value(lease, key, answer);
      const bool there = !value.empty() || is_there(lease, key, answer);
      const bool is_queue = !there && ask_ready(lease, {&key, 1}, answer);
      lease.done();
      if (there) return value;
      if (is_queue) throw not_a_value({wire_key(key)});
      // Deleted between the two questions: wait for the next one.
    }
  });
}

std::optional<std::string> TcpStore::try_get(const std::string& key, Deadline deadline) {
  return ask(StoreOp::kGet, {&key, 1}, deadline, [&](Lease& lease) {
    const Deadline answer = answer_deadline(deadline);
    std::optional<std::string> value;
    // Not GET alone: PyTorch's older server closes the connection on a missing key.
    if (ask_ready(lease, {&key, 1}, answer)) value = ask_value(lease, key, answer);
    if (value && value->empty() && !is_there(lease, key, answer)) value.reset();
    lease.done();
    return value;
  });
}

Store::Keys TcpStore::multi_get(const Keys& keys, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  Keys values;
  values.reserve(keys.size());
  for (const KeySpan batch : batches(keys))
    ask(StoreOp::kMultiGet, batch, deadline, [&](Lease& lease) {
      wait_on(lease, batch, deadline, budget);
      lease.begin();
      const Deadline answer = answer_deadline(deadline);
      lease->send(request_of(StoreOp::kMultiGet, batch), answer);
      for (std::size_t i = 0; i < batch.size(); ++i) values.push_back(lease->read_text(answer));
      lease.done();
    });
  return values;
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t delta, Deadline deadline) {
  std::string request = request_of(StoreOp::kAdd, key);
  append_number(request, delta);
  try {
    return ask_number(StoreOp::kAdd, {&key, 1}, request, deadline);
  } catch (const StoreLost& error) {
    std::optional<std::string> value;
    try {
      value = try_get(key, Deadline::after(kCourtesyBudget));
    } catch (const Error&) {
      // It is gone indeed.
    }
    if (value && !counter_sum(*value, delta)) throw not_a_number(wire_key(key), *value);
    pool_.give_up(error);
    throw;
  }
}

std::string TcpStore::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired, Deadline deadline) {
  demand_value(key, desired);
  std::string request = request_of(StoreOp::kCompareSet, key, expected);
  append_text(request, desired);
  return ask(StoreOp::kCompareSet, {&key, 1}, deadline, [&](Lease& lease) {
    const Deadline answer = answer_deadline(deadline);
    lease->send(request, answer);
    std::string value = lease->read_text(answer);
    lease.done();
    return value;
  });
}

bool TcpStore::check(const Keys& keys, Deadline deadline) {
  return ask(StoreOp::kCheck, keys, deadline, [&](Lease& lease) {
    const Deadline answer = answer_deadline(deadline);
    bool ready = true;
    for (const KeySpan batch : batches(keys)) ready = ready && ask_ready(lease, batch, answer);
    lease.done();
    return ready;
  });
}

void TcpStore::wait(const Keys& keys, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  for (const KeySpan batch : batches(keys))
    ask(StoreOp::kWait, batch, deadline,
        [&](Lease& lease) { wait_on(lease, batch, deadline, budget); });
}

bool TcpStore::delete_key(const std::string& key, Deadline deadline) {
  const std::string request = request_of(StoreOp::kDeleteKey, key);
  return ask_number(StoreOp::kDeleteKey, {&key, 1}, request, deadline) > 0;
}

std::int64_t TcpStore::num_keys(Deadline deadline) {
  return ask_number(StoreOp::kNumKeys, {}, request_of(StoreOp::kNumKeys), deadline);
}

// The store is still there, so that it closed the connection because of what we asked.
Error TcpStore::unless_gone(StoreOp op, const StoreLost& error) {
  try {
    num_keys(Deadline::after(kCourtesyBudget));
  } catch (const Error&) {
    pool_.give_up(error);
    return error;
  }
  return Error(ErrorCode::kUnavailable,
               fmt::format("the store at {} does not know {}", pool_.name(), store_op_name(op)),
               "it closed the connection on it; PyTorch's has queues since 2.8 and LIST_KEYS since "
               "2.10, and only with use_libuv=True",
               "use a store of dtrun or of a newer PyTorch");
}

std::int64_t TcpStore::queue_len(const std::string& key, Deadline deadline) {
  const std::string request = request_of(StoreOp::kQueueLength, key);
  try {
    return ask_number(StoreOp::kQueueLength, {&key, 1}, request, deadline);
  } catch (const StoreLost& error) {
    throw unless_gone(StoreOp::kQueueLength, error);
  }
}

// QUEUE_PUSH has no reply: a store that does not know it would seem lost in whatever comes next.
void TcpStore::demand_queues(Deadline deadline) {
  if (has_queues_.load(std::memory_order_relaxed)) return;
  queue_len("", deadline);
  has_queues_.store(true, std::memory_order_relaxed);
}

void TcpStore::queue_push(const std::string& key, std::string_view value, Deadline deadline) {
  demand_queues(deadline);
  write(StoreOp::kQueuePush, {&key, 1}, request_of(StoreOp::kQueuePush, key, value), deadline);
}

std::string TcpStore::queue_pop(const std::string& key, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  demand_queues(deadline);
  return ask(StoreOp::kQueuePop, {&key, 1}, deadline, [&](Lease& lease) {
    while (true) {
      const Deadline answer = answer_deadline(deadline);
      lease->send(request_of(StoreOp::kQueuePop, key), answer);
      if (lease->read_count(answer) > 0) {
        std::string value = lease->read_text(answer);
        lease.done();
        return value;
      }
      // Empty, or another consumer was faster. A plain key of that name would end each wait at
      // once.
      if (ask_ready(lease, {&key, 1}, answer) && is_there(lease, key, answer)) {
        lease.done();
        throw not_a_queue(wire_key(key));
      }
      wait_on(lease, {&key, 1}, deadline, budget);
      lease.begin();
    }
  });
}

Store::Keys TcpStore::list_keys(Deadline deadline) {
  try {
    return ask(StoreOp::kListKeys, {}, deadline, [&](Lease& lease) {
      const Deadline answer = answer_deadline(deadline);
      lease->send(request_of(StoreOp::kListKeys), answer);
      const Keys on_wire = lease->read_list(answer);
      lease.done();
      Keys keys;
      for (const std::string& key : on_wire)
        if (key.starts_with('/')) keys.push_back(key.substr(1));
      return keys;
    });
  } catch (const StoreLost& error) {
    throw unless_gone(StoreOp::kListKeys, error);
  }
}

// Not the protocol's BARRIER: PyTorch's stores up to 2.11 close the connection on it.
void TcpStore::barrier(const std::string& key, std::int64_t world, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  const std::string passed = key + "/passed";
  if (add(key, 1, deadline) >= world) return set(passed, "1", deadline);
  try {
    wait({passed}, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    const std::string arrived = try_get(key, deadline).value_or("none");
    throw barrier_timeout(budget, wire_key(key), arrived, world, name());
  }
}

}  // namespace

std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options) {
  return std::make_shared<TcpStore>(options);
}

}  // namespace dtrun::rendezvous
