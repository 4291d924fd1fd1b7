#include "store/store_core.h"

#include <cerrno>
#include <cstdlib>

namespace dtrun::rendezvous {
namespace {

void link_last(WaitList& list, WaitLink& link) {
  link.list = &list;
  link.previous = list.last;
  link.next = nullptr;
  (list.last ? list.last->next : list.first) = &link;
  list.last = &link;
}

void unlink(WaitLink& link) {
  (link.previous ? link.previous->next : link.list->first) = link.next;
  (link.next ? link.next->previous : link.list->last) = link.previous;
  link.list = nullptr;
}

// A value that was larger gives its memory back when a new one is stored.
constexpr std::size_t kReusedCapacity = 4096;

// Reads a value that is a number, however many blanks and zeros it begins with.
constexpr std::size_t kMostOfACounter = 4096;

std::shared_ptr<StoreBytes> bytes_of(StoreMemory& memory, std::string_view text) {
  return std::make_shared<StoreBytes>(memory, text);
}

std::shared_ptr<StoreBytes> bytes_of(StoreMemory&, KeptPart kept) {
  kept.bytes.keep_only(kept.part);
  return std::make_shared<StoreBytes>(std::move(kept.bytes));
}

std::vector<std::string_view> views_of(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

std::optional<std::int64_t> counter_sum(std::string_view value, std::int64_t delta) {
  // strtoll() needs a 0 at the end.
  const std::string text(value.substr(0, kMostOfACounter));
  char* end = nullptr;
  errno = 0;
  const std::int64_t number = std::strtoll(text.c_str(), &end, 10);
  std::int64_t sum = 0;
  if (end == text.c_str() || errno == ERANGE || __builtin_add_overflow(number, delta, &sum))
    return std::nullopt;
  return sum;
}

void StoreCore::clear() {
  entries_.clear();
  key_count_ = 0;
  // Values that somebody still holds stay charged.
  memory_.give_back(entry_bytes_);
  entry_bytes_ = 0;
}

StoreEntry& StoreCore::entry_of(std::string_view key) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  charge(kEntryBytes + key.size());
  const auto [created, is_new] = entries_.try_emplace(std::string(key));
  created->second.key = &created->first;
  return created->second;
}

const StoreEntry* StoreCore::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

bool StoreCore::is_there(std::string_view key) const {
  const StoreEntry* entry = find(key);
  return entry != nullptr && (entry->value || entry->queue);
}

void StoreCore::drop_if_empty(StoreEntry& entry) {
  if (entry.value || entry.queue || !entry.waiters.empty() || !entry.barrier_waiters.empty())
    return;
  discharge(kEntryBytes + entry.key->size());
  entries_.erase(entries_.find(*entry.key));
}

void StoreCore::charge(std::size_t bytes) {
  memory_.claim(bytes);
  entry_bytes_ += bytes;
}

void StoreCore::discharge(std::size_t bytes) {
  memory_.give_back(bytes);
  entry_bytes_ -= bytes;
}

// An entry that is new and finds no room for what it is to hold goes again.
template <typename Change>
auto StoreCore::change_entry(std::string_view key, Change change) {
  StoreEntry& entry = entry_of(key);
  try {
    return change(entry);
  } catch (const StoreFull&) {
    drop_if_empty(entry);
    throw;
  }
}

// In place, unless a reply that is still being sent shares the old value, or it was a big one.
void StoreCore::store(StoreEntry& entry, std::string_view value) {
  if (entry.value && entry.value.use_count() == 1 && entry.value->capacity() <= kReusedCapacity)
    return entry.value->assign(value);
  replace(entry, bytes_of(memory_, value));
}

void StoreCore::store(StoreEntry& entry, KeptPart value) {
  replace(entry, bytes_of(memory_, value));
}

void StoreCore::replace(StoreEntry& entry, std::shared_ptr<StoreBytes> value) {
  if (!entry.value) ++key_count_;
  entry.value = std::move(value);
}

template <typename Text>
void StoreCore::set_any(std::string_view key, Text value) {
  change_entry(key, [&](StoreEntry& entry) {
    store(entry, value);
    release_all(entry.waiters);
    release_all(entry.barrier_waiters);
  });
}

void StoreCore::set(std::string_view key, std::string_view value) {
  set_any(key, value);
}

void StoreCore::set(std::string_view key, KeptPart value) {
  set_any(key, value);
}

void StoreCore::multi_set(std::span<const std::string_view> keys,
                          std::span<const std::string_view> values) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < keys.size(); ++i)
    most += kEntryBytes + keys[i].size() + values[i].size();
  // All or nothing. The sum takes every key to be new, which is more than is needed at the most.
  if (!memory_.has_room(most)) throw StoreFull();
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

Value StoreCore::get(std::string_view key) const {
  const StoreEntry* entry = find(key);
  return entry == nullptr ? Value() : Value(entry->value);
}

std::optional<std::int64_t> StoreCore::count_up(StoreEntry& entry, std::int64_t delta) {
  const std::optional<std::int64_t> sum =
      entry.value ? counter_sum(entry.value->view(), delta) : std::optional(delta);
  if (!sum) return std::nullopt;
  store(entry, std::to_string(*sum));
  release_all(entry.waiters);
  return sum;
}

std::optional<std::int64_t> StoreCore::add(std::string_view key, std::int64_t delta) {
  return change_entry(key, [&](StoreEntry& entry) {
    const std::optional<std::int64_t> sum = count_up(entry, delta);
    if (sum) release_all(entry.barrier_waiters);
    return sum;
  });
}

Value StoreCore::compare_set(std::string_view key, std::string_view expected,
                             std::string_view desired) {
  const Value present = get(key);
  // As PyTorch's server: a missing key is set only where nothing was expected; else the caller gets
  // its expectation back. Waiters are released only by set(), so only where something was stored.
  if (present && *present != expected) return present;
  if (!present && !expected.empty()) return Value(bytes_of(memory_, expected));
  set(key, desired);
  return get(key);
}

bool StoreCore::check(std::span<const std::string_view> keys) const {
  for (const std::string_view key : keys)
    if (!is_there(key)) return false;
  return true;
}

bool StoreCore::check(const std::vector<std::string>& keys) const {
  return check(views_of(keys));
}

bool StoreCore::remove(std::string_view key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.value) return false;
  found->second.value.reset();
  --key_count_;
  drop_if_empty(found->second);
  return true;
}

// Also while a reply is being sent: that is of the value as it was, which is how this one begins.
void StoreCore::append(std::string_view key, std::string_view value) {
  change_entry(key, [&](StoreEntry& entry) {
    if (entry.value) {
      entry.value->append(value);
    } else {
      store(entry, value);
    }
    release_all(entry.waiters);
    release_all(entry.barrier_waiters);
  });
}

std::vector<std::string> StoreCore::list_keys() const {
  std::vector<std::string> keys;
  keys.reserve(key_count_);
  each_key([&](std::string_view key) { keys.emplace_back(key); });
  return keys;
}

template <typename Text>
void StoreCore::push_any(std::string_view key, Text value) {
  change_entry(key, [&](StoreEntry& entry) {
    std::shared_ptr<StoreBytes> element = bytes_of(memory_, value);
    charge(kElementBytes);
    if (!entry.queue) entry.queue = std::make_unique<StoreEntry::Queue>();
    entry.queue->push_back(std::move(element));
    // One element is for one waiter.
    wake_one_for_queue(entry);
  });
}

void StoreCore::queue_push(std::string_view key, std::string_view value) {
  push_any(key, value);
}

void StoreCore::queue_push(std::string_view key, KeptPart value) {
  push_any(key, value);
}

Value StoreCore::queue_front(std::string_view key) const {
  const StoreEntry* entry = find(key);
  return entry != nullptr && entry->queue ? Value(entry->queue->front()) : Value();
}

Value StoreCore::queue_pop(std::string_view key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.queue) return Value();
  StoreEntry& entry = found->second;
  const Value front(entry.queue->front());
  entry.queue->pop_front();
  discharge(kElementBytes);
  if (entry.queue->empty()) {
    entry.queue.reset();
    drop_if_empty(entry);
  }
  return front;
}

std::size_t StoreCore::queue_length(std::string_view key) const {
  const StoreEntry* entry = find(key);
  return entry != nullptr && entry->queue ? entry->queue->size() : 0;
}

bool StoreCore::wait(Waiter& waiter, const std::vector<std::string>& keys) {
  return wait(waiter, views_of(keys));
}

bool StoreCore::wait(Waiter& waiter, std::span<const std::string_view> keys) {
  drop_waits(waiter);
  std::vector<std::string_view> missing;
  for (const std::string_view key : keys)
    if (!is_there(key)) missing.push_back(key);
  if (missing.empty()) return true;
  make_links(waiter, missing.size());
  try {
    for (std::size_t i = 0; i < missing.size(); ++i) {
      WaitLink& link = waiter.links_[i];
      link.waiter = &waiter;
      link.entry = &entry_of(missing[i]);
      link_last(link.entry->waiters, link);
    }
  } catch (const StoreFull&) {
    drop_waits(waiter);
    throw;
  }
  waiter.missing_ = missing.size();
  return false;
}

// Its place in the list is claimed before it is counted.
StoreCore::Barrier StoreCore::barrier(Waiter& waiter, std::string_view key, std::int64_t world) {
  drop_waits(waiter);
  make_links(waiter, 1);
  try {
    const Barrier outcome =
        change_entry(key, [&](StoreEntry& entry) { return arrive(waiter, entry, world); });
    if (outcome != Barrier::kWaiting) forget_links(waiter);
    return outcome;
  } catch (const StoreFull&) {
    forget_links(waiter);
    throw;
  }
}

StoreCore::Barrier StoreCore::arrive(Waiter& waiter, StoreEntry& entry, std::int64_t world) {
  const std::optional<std::int64_t> arrived = count_up(entry, 1);
  if (!arrived) return Barrier::kNotANumber;
  if (*arrived >= world) {
    release_all(entry.barrier_waiters);
    return Barrier::kPassed;
  }
  waiter.links_[0].waiter = &waiter;
  waiter.links_[0].entry = &entry;
  link_last(entry.barrier_waiters, waiter.links_[0]);
  waiter.missing_ = 1;
  return Barrier::kWaiting;
}

// The lists point into links_: it must not move while they do.
void StoreCore::make_links(Waiter& waiter, std::size_t count) {
  charge(count * sizeof(WaitLink));
  waiter.links_.resize(count);
}

void StoreCore::forget_links(Waiter& waiter) {
  discharge(waiter.links_.size() * sizeof(WaitLink));
  std::vector<WaitLink>().swap(waiter.links_);
}

void StoreCore::drop_waits(Waiter& waiter) {
  if (waiter.links_.empty()) return;
  for (WaitLink& link : waiter.links_) {
    if (link.list == nullptr) continue;
    unlink(link);
    drop_if_empty(*link.entry);
  }
  forget_links(waiter);
  waiter.missing_ = 0;
}

void StoreCore::cancel(Waiter& waiter) {
  drop_waits(waiter);
  if (!waiter.granted_queue_) return;
  const auto found = entries_.find(*waiter.granted_queue_);
  waiter.granted_queue_.reset();
  if (found != entries_.end() && found->second.queue) wake_one_for_queue(found->second);
}

Waiter* StoreCore::release_first(WaitList& list) {
  WaitLink& link = *list.first;
  Waiter* waiter = link.waiter;
  unlink(link);
  if (--waiter->missing_ > 0) return nullptr;
  forget_links(*waiter);
  waiter->released();
  return waiter;
}

void StoreCore::release_all(WaitList& list) {
  while (!list.empty()) release_first(list);
}

void StoreCore::wake_one_for_queue(StoreEntry& entry) {
  // A client that waits for other keys as well notes that this key has been set, and sleeps on.
  while (!entry.waiters.empty()) {
    Waiter* const waiter = release_first(entry.waiters);
    if (waiter == nullptr) continue;
    waiter->granted_queue_ = std::make_unique<std::string>(*entry.key);
    return;
  }
}

}  // namespace dtrun::rendezvous
