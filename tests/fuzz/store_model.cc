#include "fuzz/store_model.h"

#include <cctype>
#include <climits>
#include <cstring>
#include <optional>

namespace dtrun::fuzz {
namespace {

constexpr std::string_view kPreamble("\x00\xce\xf7\x85\x3c", 5);
constexpr std::uint64_t kMaxRequestBytes = 256 << 20;
__extension__ typedef __int128 Wide;

/// What follows the operation's number: k key, v value, i i64, u u32, * a count of what follows.
std::string_view fields_of(int op) {
  constexpr std::string_view kFields[kModelOps] = {"u",  "kv", "kvv", "k",  "ki",  "*k", "*k",
                                                   "",   "k",  "kv",  "*k", "*kv", "",   "u",
                                                   "kv", "k",  "k",   "",   "ki"};
  return op == kWatchKey ? "k" : kFields[op];
}

const std::vector<int>& numbers_of(ModelDialect dialect) {
  static const std::vector<int> kModern = [] {
    std::vector<int> all;
    for (int op = 0; op < kModelOps; ++op) all.push_back(op);
    return all;
  }();
  static const std::vector<int> k19 = {kSet,  kCompareSet, kGet,      kAdd,      kCheck,
                                       kWait, kNumKeys,    kWatchKey, kDeleteKey};
  static const std::vector<int> k21 = {kSet,    kCompareSet, kGet,      kAdd,
                                       kCheck,  kWait,       kNumKeys,  kDeleteKey,
                                       kAppend, kMultiGet,   kMultiSet, kCancelWait};
  switch (dialect) {
    case ModelDialect::kModern:
      return kModern;
    case ModelDialect::kTorch19To20:
      return k19;
    case ModelDialect::kTorch21:
      return k21;
  }
  return kModern;
}

template <typename Number>
std::string raw(Number number) {
  std::string result;
  for (std::size_t i = 0; i < sizeof number; ++i)
    result += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xff);
  return result;
}

std::string text(const std::string& content) {
  return raw<std::uint64_t>(content.size()) + content;
}

// Reads one request's fields from the front of its bytes.
class Decoder {
 public:
  Decoder(std::string_view bytes, const ModelLimits& limits) : bytes_(bytes), limits_(limits) {}

  Decoded run(ModelDialect dialect) {
    std::uint64_t code = 0;
    if (!number(1, code)) return finish(Decoded::kNeedsMore);
    if (code >= numbers_of(dialect).size()) return finish(Decoded::kBad);
    result_.request.op = numbers_of(dialect)[code];
    std::string_view fields = fields_of(result_.request.op);
    std::uint64_t times = 1;
    if (fields.starts_with('*')) {
      const bool whole = number(8, times);
      if (times > limits_.keys) return finish(Decoded::kBad);
      if (!whole) return finish(Decoded::kNeedsMore);
      fields.remove_prefix(1);
    }
    for (std::uint64_t i = 0; i < times; ++i)
      for (const char field : fields) {
        const Decoded::Status status = read(field);
        if (status != Decoded::kComplete) return finish(status);
      }
    return finish(Decoded::kComplete);
  }

 private:
  Decoded finish(Decoded::Status status) {
    result_.status = status;
    result_.size = at_;
    return std::move(result_);
  }
  // Where it is cut off: false, and what its low bytes say; it is that or more.
  bool number(std::size_t width, std::uint64_t& value) {
    value = 0;
    for (std::size_t i = 0; i < width && at_ + i < bytes_.size(); ++i)
      value |= std::uint64_t{static_cast<unsigned char>(bytes_[at_ + i])} << (8 * i);
    if (bytes_.size() - at_ < width) return false;
    at_ += width;
    return true;
  }
  Decoded::Status read(char field) {
    std::uint64_t value = 0;
    const bool whole = number(field == 'u' ? 4 : 8, value);
    if (!whole && (field == 'u' || field == 'i')) return Decoded::kNeedsMore;
    if (field == 'u' || field == 'i') {
      result_.request.number = static_cast<std::int64_t>(value);
      return Decoded::kComplete;
    }
    if (value > (field == 'k' ? limits_.key_bytes : limits_.value_bytes)) return Decoded::kBad;
    if (!whole) return Decoded::kNeedsMore;
    total_ += value + 8;
    if (total_ > kMaxRequestBytes) return Decoded::kBad;
    if (bytes_.size() - at_ < value) return Decoded::kNeedsMore;
    auto& texts = field == 'k' ? result_.request.keys : result_.request.values;
    texts.emplace_back(bytes_.substr(at_, value));
    at_ += value;
    return Decoded::kComplete;
  }

  std::string_view bytes_;
  const ModelLimits& limits_;
  std::size_t at_ = 0;
  std::uint64_t total_ = 0;
  Decoded result_;
};

// As C reads a number: blanks, a sign, digits, and whatever comes after them. A text that holds a
// zero byte ends there.
std::optional<std::int64_t> counter_of(const std::string& content) {
  std::size_t at = 0;
  const auto byte = [&] { return at < content.size() ? content[at] : '\0'; };
  while (byte() == ' ' || (byte() >= '\t' && byte() <= '\r')) ++at;
  const bool negative = byte() == '-';
  if (byte() == '-' || byte() == '+') ++at;
  if (byte() < '0' || byte() > '9') return std::nullopt;
  Wide number = 0;
  for (; byte() >= '0' && byte() <= '9'; ++at) {
    number = number * 10 + (byte() - '0');
    if (number > Wide{INT64_MAX} + 1) number = Wide{INT64_MAX} + 2;
  }
  if (negative) number = -number;
  if (number > INT64_MAX || number < INT64_MIN) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

Decoded decode(ModelDialect dialect, std::string_view bytes, const ModelLimits& limits) {
  return Decoder(bytes, limits).run(dialect);
}

std::string encode(ModelDialect dialect, const ModelRequest& request) {
  const std::vector<int>& numbers = numbers_of(dialect);
  std::size_t code = 0;
  while (code < numbers.size() && numbers[code] != request.op) ++code;
  if (code == numbers.size()) return "";
  std::string result(1, static_cast<char>(code));
  std::string_view fields = fields_of(request.op);
  std::size_t times = 1;
  if (fields.starts_with('*')) {
    times = request.keys.size();
    result += raw<std::uint64_t>(times);
    fields.remove_prefix(1);
  }
  auto key = request.keys.begin();
  auto value = request.values.begin();
  for (std::size_t i = 0; i < times; ++i)
    for (const char field : fields) {
      if (field == 'k') result += text(*key++);
      if (field == 'v') result += text(*value++);
      if (field == 'i') result += raw<std::int64_t>(request.number);
      if (field == 'u') result += raw(static_cast<std::uint32_t>(request.number));
    }
  return result;
}

void StoreModel::receive(std::size_t who, std::string_view bytes) {
  Client& client = clients_[who];
  if (client.state == Client::kAgent || client.state == Client::kFailed) return;
  client.input += bytes;
  if (client.state == Client::kOpening) open(client);
  while (client.state == Client::kServing) {
    const Decoded decoded = decode(client.dialect, client.input, limits_);
    if (decoded.status == Decoded::kNeedsMore) return;
    if (decoded.status == Decoded::kBad) {
      client.state = Client::kFailed;
      return;
    }
    client.input.erase(0, decoded.size);
    execute(who, decoded.request);
  }
}

void StoreModel::open(Client& client) {
  if (client.input.empty()) return;
  if (static_cast<unsigned char>(client.input[0]) >= 0x80) {
    client.state = Client::kAgent;
  } else if (client.input.starts_with(kPreamble)) {
    client.input.erase(0, kPreamble.size());
    client.state = Client::kServing;
  } else if (!kPreamble.starts_with(client.input)) {
    client.dialect = legacy_;
    client.state = Client::kServing;
  }
}

void StoreModel::replace(std::size_t who) {
  cancel(who);
  clients_[who] = Client();
}

std::size_t StoreModel::text_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [key, value] : values_) bytes += key.size() + value.size();
  for (const auto& [key, queue] : queues_) {
    if (!values_.count(key)) bytes += key.size();
    for (const std::string& value : queue) bytes += value.size();
  }
  return bytes;
}

void StoreModel::execute(std::size_t who, const ModelRequest& request) {
  Client& client = clients_[who];
  if (request.op == kCancelWait) {
    cancel(who);
    client.output += '\1';
    return;
  }
  client.is_granted = false;
  if (client.dialect != ModelDialect::kModern) drop_waits(who);
  switch (request.op) {
    case kValidate:
      if (request.number != 0x3C85F7CE) client.state = Client::kFailed;
      return;
    case kWatchKey:
      client.state = Client::kFailed;
      return;
    case kPing:
      client.output += raw(static_cast<std::uint32_t>(request.number));
      return;
    case kNumKeys:
      client.output += raw<std::uint64_t>(values_.size());
      return;
    case kListKeys:
      return list_keys(client);
    case kWait:
      return wait(who, request.keys);
    case kBarrier:
      return barrier(who, request.keys[0], request.number);
    case kQueuePush:
    case kQueuePop:
    case kQueueLength:
      return execute_on_queue(who, request);
    default:
      return execute_on_key(who, request);
  }
}

void StoreModel::execute_on_key(std::size_t who, const ModelRequest& request) {
  Client& client = clients_[who];
  switch (request.op) {
    case kSet:
    case kMultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i) set(request.keys[i], request.values[i]);
      return;
    case kAppend:
      return set(request.keys[0], value_or_nothing(request.keys[0]) + request.values[0]);
    case kGet:
    case kMultiGet:
      for (const std::string& key : request.keys) client.output += text(value_or_nothing(key));
      return;
    case kDeleteKey:
      client.output += raw<std::uint64_t>(values_.erase(request.keys[0]));
      return;
    case kCheck: {
      char answer = 0;
      for (const std::string& key : request.keys)
        if (!is_there(key)) answer = 1;
      client.output += answer;
      return;
    }
    case kCompareSet: {
      const std::string& key = request.keys[0];
      const bool stores = value_or_nothing(key) == request.values[0];
      if (stores) set(key, request.values[1]);
      client.output += text(values_.count(key) ? values_[key] : request.values[0]);
      return;
    }
    case kAdd: {
      std::int64_t sum = 0;
      if (!add(request.keys[0], request.number, sum)) {
        client.state = Client::kFailed;
        return;
      }
      release(request.keys[0], Waits::kBoth);
      client.output += raw(sum);
      return;
    }
  }
}

void StoreModel::execute_on_queue(std::size_t who, const ModelRequest& request) {
  const std::string& key = request.keys[0];
  if (request.op == kQueuePush) {
    queues_[key].push_back(request.values[0]);
    return wake_one_for_queue(key);
  }
  Client& client = clients_[who];
  const auto queue = queues_.find(key);
  client.output += raw<std::uint64_t>(queue == queues_.end() ? 0 : queue->second.size());
  if (request.op == kQueueLength || queue == queues_.end()) return;
  client.output += text(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
}

void StoreModel::wait(std::size_t who, const std::vector<std::string>& keys) {
  drop_waits(who);
  for (const std::string& key : keys)
    if (!is_there(key)) {
      waits_.push_back({who, key, false});
      ++clients_[who].missing;
    }
  if (clients_[who].missing == 0) clients_[who].output += '\0';
}

void StoreModel::barrier(std::size_t who, const std::string& key, std::int64_t world) {
  drop_waits(who);
  std::int64_t arrived = 0;
  if (!add(key, 1, arrived)) {
    clients_[who].state = Client::kFailed;
    return;
  }
  release(key, Waits::kPlain);
  if (arrived >= world) {
    release(key, Waits::kBarrier);
    clients_[who].output += '\0';
  } else {
    waits_.push_back({who, key, true});
    clients_[who].missing = 1;
  }
}

void StoreModel::list_keys(Client& client) {
  client.lists.push_back(client.output.size());
  client.output += raw<std::uint64_t>(values_.size());
  for (const auto& [key, value] : values_) client.output += text(key);
}

void StoreModel::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  release(key, Waits::kBoth);
}

bool StoreModel::add(const std::string& key, std::int64_t delta, std::int64_t& sum) {
  std::optional<std::int64_t> before = 0;
  if (values_.count(key)) before = counter_of(values_[key]);
  if (!before) return false;
  const Wide exact = Wide{*before} + delta;
  if (exact > INT64_MAX || exact < INT64_MIN) return false;
  sum = static_cast<std::int64_t>(exact);
  values_[key] = std::to_string(sum);
  return true;
}

std::string StoreModel::value_or_nothing(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

bool StoreModel::release_one(std::list<Wait>::iterator place) {
  Client& client = clients_[place->who];
  waits_.erase(place);
  if (--client.missing > 0) return false;
  client.output += '\0';
  return true;
}

void StoreModel::release(const std::string& key, Waits which) {
  for (auto place = waits_.begin(); place != waits_.end();) {
    const auto next = std::next(place);
    const bool fits = which == Waits::kBoth || place->is_barrier == (which == Waits::kBarrier);
    if (place->key == key && fits) release_one(place);
    place = next;
  }
}

void StoreModel::wake_one_for_queue(const std::string& key) {
  for (auto next = waits_.begin(); next != waits_.end();) {
    const auto place = next++;
    if (place->key != key || place->is_barrier) continue;
    const std::size_t who = place->who;
    if (!release_one(place)) continue;
    clients_[who].granted = key;
    clients_[who].is_granted = true;
    return;
  }
}

void StoreModel::drop_waits(std::size_t who) {
  waits_.remove_if([who](const Wait& wait) { return wait.who == who; });
  clients_[who].missing = 0;
}

void StoreModel::cancel(std::size_t who) {
  drop_waits(who);
  Client& client = clients_[who];
  if (!client.is_granted) return;
  client.is_granted = false;
  if (queues_.count(client.granted)) wake_one_for_queue(client.granted);
}

}  // namespace dtrun::fuzz
