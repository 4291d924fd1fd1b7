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

Value shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
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

StoreEntry& StoreCore::entry_of(const std::string& key) {
  const auto [found, created] = entries_.try_emplace(key);
  if (created) found->second.key = &found->first;
  return found->second;
}

const StoreEntry* StoreCore::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

bool StoreCore::is_there(const std::string& key) const {
  const StoreEntry* entry = find(key);
  return entry != nullptr && (entry->value || entry->queue);
}

void StoreCore::drop_if_empty(StoreEntry& entry) {
  if (!entry.value && !entry.queue && entry.waiters.empty() && entry.barrier_waiters.empty())
    entries_.erase(entries_.find(*entry.key));
}

void StoreCore::store(StoreEntry& entry, std::string value) {
  if (!entry.value) ++key_count_;
  entry.value = std::make_shared<std::string>(std::move(value));
}

void StoreCore::set(const std::string& key, std::string value) {
  StoreEntry& entry = entry_of(key);
  store(entry, std::move(value));
  release_all(entry.waiters);
  release_all(entry.barrier_waiters);
}

Value StoreCore::get(const std::string& key) const {
  const StoreEntry* entry = find(key);
  return entry == nullptr ? nullptr : entry->value;
}

std::optional<std::int64_t> StoreCore::count_up(StoreEntry& entry, std::int64_t delta) {
  const std::optional<std::int64_t> sum =
      entry.value ? counter_sum(*entry.value, delta) : std::optional(delta);
  if (!sum) return std::nullopt;
  store(entry, std::to_string(*sum));
  release_all(entry.waiters);
  return sum;
}

std::optional<std::int64_t> StoreCore::add(const std::string& key, std::int64_t delta) {
  StoreEntry& entry = entry_of(key);
  const std::optional<std::int64_t> sum = count_up(entry, delta);
  if (sum) release_all(entry.barrier_waiters);
  return sum;
}

Value StoreCore::compare_set(const std::string& key, std::string expected, std::string desired) {
  const StoreEntry* entry = find(key);
  const bool present = entry != nullptr && entry->value;
  if (present && *entry->value != expected) return entry->value;
  if (!present && !expected.empty()) return shared(std::move(expected));
  set(key, std::move(desired));
  return get(key);
}

bool StoreCore::check(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys)
    if (!is_there(key)) return false;
  return true;
}

bool StoreCore::remove(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.value) return false;
  found->second.value.reset();
  --key_count_;
  drop_if_empty(found->second);
  return true;
}

void StoreCore::append(const std::string& key, std::string_view value) {
  StoreEntry& entry = entry_of(key);
  if (!entry.value) {
    store(entry, std::string(value));
  } else if (entry.value.use_count() == 1) {
    entry.value->append(value);
  } else {
    // A reply that is still being sent shares the old value.
    std::string longer = *entry.value;
    store(entry, std::move(longer.append(value)));
  }
  release_all(entry.waiters);
  release_all(entry.barrier_waiters);
}

std::vector<std::string> StoreCore::list_keys() const {
  std::vector<std::string> keys;
  keys.reserve(key_count_);
  for (const auto& [key, entry] : entries_)
    if (entry.value) keys.push_back(key);
  return keys;
}

void StoreCore::queue_push(const std::string& key, std::string value) {
  StoreEntry& entry = entry_of(key);
  if (!entry.queue) entry.queue = std::make_unique<std::deque<Value>>();
  entry.queue->push_back(shared(std::move(value)));
  wake_one_for_queue(entry);
}

Value StoreCore::queue_front(const std::string& key) const {
  const StoreEntry* entry = find(key);
  return entry != nullptr && entry->queue ? entry->queue->front() : nullptr;
}

Value StoreCore::queue_pop(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.queue) return nullptr;
  StoreEntry& entry = found->second;
  Value front = std::move(entry.queue->front());
  entry.queue->pop_front();
  if (entry.queue->empty()) {
    entry.queue.reset();
    drop_if_empty(entry);
  }
  return front;
}

std::size_t StoreCore::queue_length(const std::string& key) const {
  const StoreEntry* entry = find(key);
  return entry != nullptr && entry->queue ? entry->queue->size() : 0;
}

bool StoreCore::wait(Waiter& waiter, const std::vector<std::string>& keys) {
  drop_waits(waiter);
  std::vector<const std::string*> missing;
  for (const std::string& key : keys)
    if (!is_there(key)) missing.push_back(&key);
  if (missing.empty()) return true;
  // The lists point into links_: it must not move while they do.
  waiter.links_.resize(missing.size());
  for (std::size_t i = 0; i < missing.size(); ++i) {
    WaitLink& link = waiter.links_[i];
    link.waiter = &waiter;
    link.entry = &entry_of(*missing[i]);
    link_last(link.entry->waiters, link);
  }
  waiter.missing_ = missing.size();
  return false;
}

StoreCore::Barrier StoreCore::barrier(Waiter& waiter, const std::string& key, std::int64_t world) {
  drop_waits(waiter);
  StoreEntry& entry = entry_of(key);
  const std::optional<std::int64_t> arrived = count_up(entry, 1);
  if (!arrived) return Barrier::kNotANumber;
  if (*arrived >= world) {
    release_all(entry.barrier_waiters);
    return Barrier::kPassed;
  }
  waiter.links_.resize(1);
  waiter.links_[0].waiter = &waiter;
  waiter.links_[0].entry = &entry;
  link_last(entry.barrier_waiters, waiter.links_[0]);
  waiter.missing_ = 1;
  return Barrier::kWaiting;
}

void StoreCore::drop_waits(Waiter& waiter) {
  for (WaitLink& link : waiter.links_) {
    if (link.list == nullptr) continue;
    unlink(link);
    drop_if_empty(*link.entry);
  }
  waiter.links_.clear();
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
  waiter->links_.clear();
  waiter->released();
  return waiter;
}

void StoreCore::release_all(WaitList& list) {
  while (!list.empty()) release_first(list);
}

void StoreCore::wake_one_for_queue(StoreEntry& entry) {
  if (entry.waiters.empty()) return;
  if (Waiter* waiter = release_first(entry.waiters)) waiter->granted_queue_ = *entry.key;
}

}  // namespace dtrun::rendezvous
