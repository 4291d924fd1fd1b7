#include "store_core.h"

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

constexpr std::size_t kReusedCapacity = 4096;

// Points to the text, keeps the whole.
Value text_of(const std::shared_ptr<StoredValue>& value) {
  return value ? Value(value, &value->text) : nullptr;
}

std::vector<std::string_view> views_of(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

std::optional<std::int64_t> counter_sum(const std::string& text, std::int64_t delta) {
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
  const auto [created, is_new] = entries_.try_emplace(std::string(key));
  created->second.key = &created->first;
  charge(kEntryBytes + key.size());
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
  memory_.take(bytes);
  entry_bytes_ += bytes;
}

void StoreCore::discharge(std::size_t bytes) {
  memory_.give_back(bytes);
  entry_bytes_ -= bytes;
}

// In place, unless a reply that is still being sent shares the old value, or it was a big one.
void StoreCore::store(StoreEntry& entry, std::string_view value) {
  if (entry.value && entry.value.use_count() == 1 &&
      entry.value->text.capacity() <= kReusedCapacity) {
    entry.value->text.assign(value);
    return entry.value->count();
  }
  if (!entry.value) ++key_count_;
  entry.value = std::make_shared<StoredValue>(memory_, value);
}

void StoreCore::set(std::string_view key, std::string_view value) {
  StoreEntry& entry = entry_of(key);
  store(entry, value);
  release_all(entry.waiters);
  release_all(entry.barrier_waiters);
}

Value StoreCore::get(std::string_view key) const {
  const StoreEntry* entry = find(key);
  return entry == nullptr ? nullptr : text_of(entry->value);
}

std::optional<std::int64_t> StoreCore::count_up(StoreEntry& entry, std::int64_t delta) {
  const std::optional<std::int64_t> sum =
      entry.value ? counter_sum(entry.value->text, delta) : std::optional(delta);
  if (!sum) return std::nullopt;
  store(entry, std::to_string(*sum));
  release_all(entry.waiters);
  return sum;
}

std::optional<std::int64_t> StoreCore::add(std::string_view key, std::int64_t delta) {
  StoreEntry& entry = entry_of(key);
  const std::optional<std::int64_t> sum = count_up(entry, delta);
  if (sum) release_all(entry.barrier_waiters);
  return sum;
}

Value StoreCore::compare_set(std::string_view key, std::string_view expected,
                             std::string_view desired) {
  const Value present = get(key);
  if (present && *present != expected) return present;
  if (!present && !expected.empty()) return std::make_shared<const std::string>(expected);
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

void StoreCore::append(std::string_view key, std::string_view value) {
  StoreEntry& entry = entry_of(key);
  if (!entry.value) {
    store(entry, value);
  } else if (entry.value.use_count() == 1) {
    entry.value->text.append(value);
    entry.value->count();
  } else {
    store(entry, entry.value->text + std::string(value));
  }
  release_all(entry.waiters);
  release_all(entry.barrier_waiters);
}

std::vector<std::string> StoreCore::list_keys() const {
  std::vector<std::string> keys;
  keys.reserve(key_count_);
  each_key([&](std::string_view key) { keys.emplace_back(key); });
  return keys;
}

void StoreCore::queue_push(std::string_view key, std::string_view value) {
  StoreEntry& entry = entry_of(key);
  if (!entry.queue) entry.queue = std::make_unique<std::deque<std::shared_ptr<StoredValue>>>();
  entry.queue->push_back(std::make_shared<StoredValue>(memory_, value));
  charge(kEntryBytes);
  wake_one_for_queue(entry);
}

Value StoreCore::queue_front(std::string_view key) const {
  const StoreEntry* entry = find(key);
  return entry != nullptr && entry->queue ? text_of(entry->queue->front()) : nullptr;
}

Value StoreCore::queue_pop(std::string_view key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.queue) return nullptr;
  StoreEntry& entry = found->second;
  const Value front = text_of(entry.queue->front());
  entry.queue->pop_front();
  discharge(kEntryBytes);
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
  for (std::size_t i = 0; i < missing.size(); ++i) {
    WaitLink& link = waiter.links_[i];
    link.waiter = &waiter;
    link.entry = &entry_of(missing[i]);
    link_last(link.entry->waiters, link);
  }
  waiter.missing_ = missing.size();
  return false;
}

StoreCore::Barrier StoreCore::barrier(Waiter& waiter, std::string_view key, std::int64_t world) {
  drop_waits(waiter);
  StoreEntry& entry = entry_of(key);
  const std::optional<std::int64_t> arrived = count_up(entry, 1);
  if (!arrived) return Barrier::kNotANumber;
  if (*arrived >= world) {
    release_all(entry.barrier_waiters);
    return Barrier::kPassed;
  }
  make_links(waiter, 1);
  waiter.links_[0].waiter = &waiter;
  waiter.links_[0].entry = &entry;
  link_last(entry.barrier_waiters, waiter.links_[0]);
  waiter.missing_ = 1;
  return Barrier::kWaiting;
}

// The lists point into links_: it must not move while they do.
void StoreCore::make_links(Waiter& waiter, std::size_t count) {
  waiter.links_.resize(count);
  charge(count * sizeof(WaitLink));
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
  // Who waits for other keys, too, has seen that this one has been there, and sleeps on.
  while (!entry.waiters.empty()) {
    Waiter* const waiter = release_first(entry.waiters);
    if (waiter == nullptr) continue;
    waiter->granted_queue_ = std::make_unique<std::string>(*entry.key);
    return;
  }
}

}  // namespace dtrun::rendezvous
