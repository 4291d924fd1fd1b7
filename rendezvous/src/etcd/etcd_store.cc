// Each operation of Store as transactions on etcd: what it reads decides what it writes, on the
// condition that nothing has changed in between.
#include "dtrun/rendezvous/etcd_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <type_traits>

#include "dtrun/base/error.h"
#include "etcd/etcd_lease_keeper.h"
#include "etcd/etcd_store_keys.h"
#include "etcd/etcd_watch.h"
#include "etcd/etcd_writer.h"
#include "store/store_core.h"
#include "store/store_errors.h"
#include "wire/answer_deadline.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using Keys = Store::Keys;
using Content = EtcdRangeOptions::Content;

// etcd's limit is 128 operations and 1.5 MiB a transaction; a reply's is HttpConnection's.
constexpr std::size_t kMostPuts = 100;
constexpr std::size_t kMostBytesPut = 512 << 10;
constexpr std::size_t kMostKeysLookedAt = 60;
constexpr std::size_t kMostValuesRead = 8;
constexpr std::int64_t kKeysOfAPage = 1000;
// Beyond so many keys a wait watches all keys instead.
constexpr std::size_t kMostKeysWatched = 64;

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

const EtcdKeyValue* only(const EtcdRange& range) {
  return range.list.empty() ? nullptr : range.list.data();
}

class EtcdStore : public Store {
 public:
  explicit EtcdStore(const EtcdStoreOptions& options)
      : options_(options.etcd), keys_(options.prefix, random_name()) {
    const Deadline deadline = Deadline::after(options.connect_timeout);
    EtcdClient(options_, interrupt_).probe(deadline);
    if (options.ttl.count() > 0) lease_.emplace(options_, options.ttl, deadline);
    marks_.emplace(options_, keys_, lease(), options.marks_ttl);
  }

  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    ask("set", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
      writer.change(EtcdTxn().then_put(keys_.value(key), value, lease()), answer);
    });
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return multi_get({key}, deadline).front();
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return ask("get", {&key, 1}, deadline,
               [&](EtcdWriter& writer, Deadline answer) -> std::optional<std::string> {
                 const auto reply =
                     writer.client().range(EtcdKeys::one(keys_.value(key)), {}, answer);
                 const EtcdKeyValue* pair = only(reply.range);
                 if (pair == nullptr) return std::nullopt;
                 return pair->value;
               });
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Deadline deadline) override {
    return ask("add", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
      return count(writer, key, delta, answer).sum;
    });
  }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired, Deadline deadline) override;
  bool check(const Keys& keys, Deadline deadline) override {
    return ask("check", keys, deadline, [&](EtcdWriter& writer, Deadline answer) {
      return look(writer, keys, Content::keys, answer).missing.empty();
    });
  }
  void wait(const Keys& keys, Deadline deadline) override {
    const Deadline::Duration budget = deadline.remaining();
    ask("wait", keys, deadline, [&](EtcdWriter& writer, Deadline answer) {
      wait_on(writer, keys, look(writer, keys, Content::keys, answer), deadline, budget);
    });
  }
  bool delete_key(const std::string& key, Deadline deadline) override;
  std::int64_t num_keys(Deadline deadline) override {
    return ask("num_keys", {}, deadline, [&](EtcdWriter& writer, Deadline answer) {
      const auto reply =
          writer.client().range(keys_.all_values(), {.content = Content::count}, answer);
      return reply.range.count;
    });
  }
  void append(const std::string& key, std::string_view value, Deadline deadline) override {
    ask("append", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
      update(
          writer, key,
          [&](const EtcdKeyValue* now) {
            return now == nullptr ? std::string(value) : now->value + std::string(value);
          },
          answer);
    });
  }
  Keys multi_get(const Keys& keys, Deadline deadline) override;
  void multi_set(const Pairs& pairs, Deadline deadline) override;
  void queue_push(const std::string& key, std::string_view value, Deadline deadline) override {
    ask("queue_push", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
      writer.change(EtcdTxn().then_put(keys_.element(key, ++elements_made_), value, lease()),
                    answer);
    });
  }
  std::string queue_pop(const std::string& key, Deadline deadline) override;
  std::int64_t queue_len(const std::string& key, Deadline deadline) override {
    return ask("queue_len", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
      const auto reply =
          writer.client().range(keys_.queue(key), {.content = Content::count}, answer);
      return reply.range.count;
    });
  }
  Keys list_keys(Deadline deadline) override;
  void barrier(const std::string& key, std::int64_t world, Deadline deadline) override;

 private:
  using KeySpan = std::span<const std::string>;

  /// A key's revision and what is there, at one revision of the store.
  struct Look {
    std::int64_t revision = 0;
    std::vector<std::optional<std::string>>
        values;  ///< one a key; nullopt: only a queue, or missing
    std::set<std::string> missing;
  };
  struct Sum {
    std::int64_t sum = 0;
    std::int64_t revision = 0;
  };
  using NewValue = std::function<std::string(const EtcdKeyValue* now)>;

  template <typename Action>
  std::invoke_result_t<Action, EtcdWriter&, Deadline> ask(std::string_view operation, KeySpan keys,
                                                          Deadline deadline, Action action);
  Error in_store_terms(const Error& error, std::string_view operation, KeySpan keys,
                       Deadline::Duration took) const;
  std::unique_ptr<EtcdWriter> take_writer();
  void give_back(std::unique_ptr<EtcdWriter> writer);

  std::int64_t update(EtcdWriter& writer, const std::string& key, const NewValue& new_value,
                      Deadline deadline);
  Sum count(EtcdWriter& writer, const std::string& key, std::int64_t delta, Deadline deadline);
  Look look(EtcdWriter& writer, const Keys& keys, Content content, Deadline deadline);
  void look_at_some(EtcdWriter& writer, KeySpan keys, Content content, Deadline deadline,
                    Look& into);
  void wait_on(EtcdWriter& writer, const Keys& keys, Look state, Deadline deadline,
               Deadline::Duration budget);
  std::vector<EtcdKeys> to_watch(const std::set<std::string>& missing) const;
  static EtcdWatch::News next_news(EtcdWatch& watch, Deadline deadline, std::string& trouble);
  std::string name() const {
    return fmt::format("etcd's {} at {}", keys_.prefix(),
                       EtcdClient(options_, interrupt_).members());
  }
  std::int64_t lease() const { return lease_ ? lease_->id() : 0; }

  const EtcdOptions options_;
  const EtcdStoreKeys keys_;
  const Interrupt interrupt_;
  std::optional<EtcdLeaseKeeper> lease_;
  std::optional<EtcdMarks> marks_;
  std::atomic<std::int64_t> elements_made_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<EtcdWriter>> writers_;  ///< that are idle; guarded by mutex_
};

std::unique_ptr<EtcdWriter> EtcdStore::take_writer() {
  const std::lock_guard lock(mutex_);
  if (writers_.empty()) return std::make_unique<EtcdWriter>(options_, interrupt_, *marks_);
  std::unique_ptr<EtcdWriter> writer = std::move(writers_.back());
  writers_.pop_back();
  return writer;
}

void EtcdStore::give_back(std::unique_ptr<EtcdWriter> writer) {
  const std::lock_guard lock(mutex_);
  writers_.push_back(std::move(writer));
}

// An operation, `action(writer, deadline)`, with a writer of its own and a deadline that leaves
// etcd the time to answer.
template <typename Action>
std::invoke_result_t<Action, EtcdWriter&, Deadline> EtcdStore::ask(std::string_view operation,
                                                                   KeySpan keys, Deadline deadline,
                                                                   Action action) {
  const auto begin = Deadline::Clock::now();
  std::unique_ptr<EtcdWriter> writer = take_writer();
  struct Return {
    EtcdStore* store;
    std::unique_ptr<EtcdWriter>* writer;
    ~Return() { store->give_back(std::move(*writer)); }
  } at_the_end{this, &writer};
  try {
    return action(*writer, answer_deadline(deadline));
  } catch (const Error& error) {
    throw in_store_terms(error, operation, keys, Deadline::Clock::now() - begin);
  }
}

Error EtcdStore::in_store_terms(const Error& error, std::string_view operation, KeySpan keys,
                                Deadline::Duration took) const {
  // The client tries until the deadline.
  if (error.code() == ErrorCode::kConnection)
    return answer_timeout(operation, took, Keys(keys.begin(), keys.end()),
                          error.summary() + ": " + error.why());
  if (error.code() == ErrorCode::kNotFound && lease_)
    return Error(ErrorCode::kPeerFailed, fmt::format("the lease of {} has run out", name()),
                 "etcd could not be reached for longer than the store's ttl, or this process was "
                 "stopped: what it had written is gone",
                 "start the job again; a longer ttl bears longer outages");
  return error;
}

// Writes what `new_value` makes of the key's value, until nobody came in between. Returns the
// revision. The first attempt takes the key for missing: most are.
std::int64_t EtcdStore::update(EtcdWriter& writer, const std::string& key,
                               const NewValue& new_value, Deadline deadline) {
  const std::string place = keys_.value(key);
  EtcdRange range;
  while (true) {
    const EtcdKeyValue* now = only(range);
    EtcdTxn txn;
    txn.if_modified_at(place, now == nullptr ? 0 : now->mod_revision)
        .then_put(place, new_value(now), lease())
        .else_range(EtcdKeys::one(place));
    const EtcdTxnReply reply = writer.change(txn, deadline);
    if (reply.succeeded) return reply.revision;
    range = reply.range(0);
  }
}

EtcdStore::Sum EtcdStore::count(EtcdWriter& writer, const std::string& key, std::int64_t delta,
                                Deadline deadline) {
  Sum result;
  const auto add_to = [&](const EtcdKeyValue* now) {
    const std::optional<std::int64_t> sum = counter_sum(now == nullptr ? "0" : now->value, delta);
    if (!sum) throw not_a_number(key, now->value);
    result.sum = *sum;
    return std::to_string(*sum);
  };
  result.revision = update(writer, key, add_to, deadline);
  return result;
}

std::string EtcdStore::compare_set(const std::string& key, std::string_view expected,
                                   std::string_view desired, Deadline deadline) {
  const std::string place = keys_.value(key);
  return ask("compare_set", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
    EtcdRange range = writer.client().range(EtcdKeys::one(place), {}, answer).range;
    while (true) {
      const EtcdKeyValue* now = only(range);
      if (now != nullptr && now->value != expected) return now->value;
      if (now == nullptr && !expected.empty()) return std::string(expected);
      EtcdTxn txn;
      txn.if_modified_at(place, now == nullptr ? 0 : now->mod_revision)
          .then_put(place, desired, lease())
          .else_range(EtcdKeys::one(place));
      const EtcdTxnReply reply = writer.change(txn, answer);
      if (reply.succeeded) return std::string(desired);
      range = reply.range(0);
    }
  });
}

bool EtcdStore::delete_key(const std::string& key, Deadline deadline) {
  const EtcdKeys place = EtcdKeys::one(keys_.value(key));
  return ask("delete_key", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
    EtcdRange range = writer.client().range(place, {}, answer).range;
    while (const EtcdKeyValue* now = only(range)) {
      EtcdTxn txn;
      txn.if_modified_at(place.first, now->mod_revision).then_delete(place).else_range(place);
      const EtcdTxnReply reply = writer.change(txn, answer);
      if (reply.succeeded) return true;
      range = reply.range(0);
    }
    return false;
  });
}

void EtcdStore::multi_set(const Pairs& pairs, Deadline deadline) {
  Keys keys;
  for (const auto& [key, value] : pairs) keys.push_back(key);
  ask("multi_set", keys, deadline, [&](EtcdWriter& writer, Deadline answer) {
    EtcdTxn txn;
    std::size_t bytes = 0;
    std::set<std::string> names;  // a transaction may set a key once
    const auto flush = [&] {
      if (!names.empty()) writer.change(txn, answer);
      txn = EtcdTxn();
      bytes = 0;
      names.clear();
    };
    for (const auto& [key, value] : pairs) {
      if (names.size() == kMostPuts || bytes + value.size() > kMostBytesPut || names.contains(key))
        flush();
      txn.then_put(keys_.value(key), value, lease());
      bytes += key.size() + value.size();
      names.insert(key);
    }
    flush();
  });
}

void EtcdStore::look_at_some(EtcdWriter& writer, KeySpan keys, Content content, Deadline deadline,
                             Look& into) {
  EtcdTxn txn;
  for (const std::string& key : keys) {
    txn.then_range(EtcdKeys::one(keys_.value(key)), {.content = content});
    txn.then_range(keys_.queue(key), {.limit = 1, .content = Content::keys});
  }
  const EtcdTxnReply reply = writer.client().txn(txn, deadline);
  into.revision = into.revision == 0 ? reply.revision : std::min(into.revision, reply.revision);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const EtcdKeyValue* pair = only(reply.range(2 * i));
    into.values.push_back(pair == nullptr ? std::nullopt : std::optional(pair->value));
    if (pair == nullptr && reply.range(2 * i + 1).list.empty()) into.missing.insert(keys[i]);
  }
}

EtcdStore::Look EtcdStore::look(EtcdWriter& writer, const Keys& keys, Content content,
                                Deadline deadline) {
  const std::size_t most = content == Content::values ? kMostValuesRead : kMostKeysLookedAt;
  Look result;
  for (std::size_t begin = 0; begin < keys.size(); begin += most)
    look_at_some(writer, KeySpan(keys).subspan(begin, std::min(most, keys.size() - begin)), content,
                 deadline, result);
  return result;
}

std::vector<EtcdKeys> EtcdStore::to_watch(const std::set<std::string>& missing) const {
  if (missing.size() > kMostKeysWatched) return {keys_.all_values(), keys_.all_queues()};
  std::vector<EtcdKeys> places;
  for (const std::string& key : missing) {
    places.push_back(EtcdKeys::one(keys_.value(key)));
    places.push_back(keys_.queue(key));
  }
  return places;
}

// None, and the reason added to `trouble`, where etcd cannot be reached until the deadline.
EtcdWatch::News EtcdStore::next_news(EtcdWatch& watch, Deadline deadline, std::string& trouble) {
  try {
    return watch.next(deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kConnection) throw;
    trouble = fmt::format("; {}: {}", error.summary(), error.why());
    return {};
  }
}

// Returns when each key that `state` misses has been set since.
void EtcdStore::wait_on(EtcdWriter& writer, const Keys& keys, Look state, Deadline deadline,
                        Deadline::Duration budget) {
  std::string trouble;
  while (!state.missing.empty()) {
    EtcdWatch watch(writer.client(), to_watch(state.missing), state.revision + 1);
    bool forgotten = false;
    while (!forgotten && !state.missing.empty()) {
      if (deadline.expired())
        throw wait_timeout(budget, keys, Keys(state.missing.begin(), state.missing.end()),
                           name() + trouble);
      const EtcdWatch::News news = next_news(watch, deadline, trouble);
      forgotten = news.forgotten;
      for (const EtcdEvent& event : news.events)
        if (event.kind == EtcdEvent::Kind::put)
          std::erase_if(state.missing, [&](const std::string& key) {
            return event.pair.key == keys_.value(key) || keys_.queue(key).has(event.pair.key);
          });
    }
    if (!forgotten) return;
    state = look(writer, Keys(state.missing.begin(), state.missing.end()), Content::keys,
                 answer_deadline(deadline));
  }
}

Keys EtcdStore::multi_get(const Keys& keys, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  return ask("get", keys, deadline, [&](EtcdWriter& writer, Deadline answer) {
    while (true) {
      const Look state = look(writer, keys, Content::values, answer);
      Keys values;
      for (const std::optional<std::string>& value : state.values)
        if (value) values.push_back(*value);
      if (values.size() == keys.size()) return values;
      if (state.missing.empty()) throw not_a_value(keys);
      wait_on(writer, keys, state, deadline, budget);
      answer = answer_deadline(deadline);
    }
  });
}

std::string EtcdStore::queue_pop(const std::string& key, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  const EtcdKeys queue = keys_.queue(key);
  EtcdTxn first;
  first.then_range(queue, {.limit = 1, .order = EtcdRangeOptions::Order::by_creation})
      .then_range(EtcdKeys::one(keys_.value(key)), {.content = Content::keys});
  return ask("queue_pop", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
    while (true) {
      EtcdTxnReply reply = writer.client().txn(first, answer);
      if (const EtcdKeyValue* element = only(reply.range(0))) {
        EtcdTxn removal;
        removal.if_created_at(element->key, element->create_revision)
            .then_delete(EtcdKeys::one(element->key));
        if (writer.change(removal, answer).succeeded) return element->value;
        continue;  // another consumer was faster
      }
      if (only(reply.range(1)) != nullptr) throw not_a_queue(key);
      wait_on(writer, {key}, {reply.revision, {}, {key}}, deadline, budget);
      answer = answer_deadline(deadline);
    }
  });
}

Keys EtcdStore::list_keys(Deadline deadline) {
  return ask("list_keys", {}, deadline, [&](EtcdWriter& writer, Deadline answer) {
    Keys result;
    EtcdKeys rest = keys_.all_values();
    EtcdRangeOptions options{.limit = kKeysOfAPage, .content = Content::keys};
    while (true) {
      const auto reply = writer.client().range(rest, options, answer);
      for (const EtcdKeyValue& pair : reply.range.list) result.push_back(keys_.key_of(pair.key));
      const bool more = reply.range.count > static_cast<std::int64_t>(reply.range.list.size());
      if (!more || reply.range.list.empty()) return result;
      options.revision = reply.revision;  // all pages as of one moment
      rest.first = reply.range.list.back().key + '\0';
    }
  });
}

void EtcdStore::barrier(const std::string& key, std::int64_t world, Deadline deadline) {
  const Deadline::Duration budget = deadline.remaining();
  const EtcdKeys counter = EtcdKeys::one(keys_.value(key));
  ask("barrier", {&key, 1}, deadline, [&](EtcdWriter& writer, Deadline answer) {
    Sum arrived = count(writer, key, 1, answer);
    const auto take = [&](const EtcdKeyValue& pair) {
      arrived.sum = counter_sum(pair.value, 0).value_or(0);
    };
    std::optional<EtcdWatch> watch;
    std::string trouble;
    while (arrived.sum < world) {
      if (deadline.expired())
        throw barrier_timeout(budget, key, std::to_string(arrived.sum), world, name() + trouble);
      if (!watch) watch.emplace(writer.client(), std::vector{counter}, arrived.revision + 1);
      const EtcdWatch::News news = next_news(*watch, deadline, trouble);
      // As soon as all had come, even if the counter was set back since.
      for (const EtcdEvent& event : news.events)
        if (arrived.sum < world && event.kind == EtcdEvent::Kind::put) take(event.pair);
      if (!news.forgotten) continue;
      const auto now = writer.client().range(counter, {}, answer_deadline(deadline));
      if (const EtcdKeyValue* pair = only(now.range)) take(*pair);
      arrived.revision = now.revision;
      watch.reset();
    }
  });
}

}  // namespace

std::shared_ptr<Store> connect_etcd_store(const EtcdStoreOptions& options) {
  if (options.etcd.endpoints.empty())
    throw Error(ErrorCode::kInvalidArgument, "an EtcdStore needs an endpoint of etcd", "",
                "name one or more members: host:2379");
  return std::make_shared<EtcdStore>(options);
}

}  // namespace dtrun::rendezvous
