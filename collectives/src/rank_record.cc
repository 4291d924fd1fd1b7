#include "rank_record.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

using rendezvous::RankState;

namespace {

template <std::size_t N>
void copy_text(char (&target)[N], std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

/// A record has room for seven letters.
std::string_view recorded_name(const Fingerprint& fingerprint) {
  if (!is_reduction(fingerprint.kind)) return "";
  if (fingerprint.reduce_op == ReduceOp::premul_sum) return "premul";
  return reduce_op_name(fingerprint.reduce_op);
}

/// CLOCK_MONOTONIC_COARSE: a few milliseconds behind monotonic_ns() at a quarter of its cost. The
/// times are for people, and an operation may take less time than an exact clock read.
std::int64_t recent_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::uint64_t next_group_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// Everything but the sequence, the site too. In line: most differ in the first word, the kind.
inline bool are_of_one_place(const Fingerprint& one, const Fingerprint& other) {
  static_assert(offsetof(Fingerprint, sequence) == 0);
  constexpr std::size_t kWords = sizeof(Fingerprint) / sizeof(std::uint64_t);
  const auto word = [](const Fingerprint& print, std::size_t i) {
    std::uint64_t value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(&print) + i * sizeof(value),
                sizeof(value));
    return value;
  };
  if (word(one, 1) != word(other, 1)) return false;
  std::uint64_t differences = 0;
  for (std::size_t i = 2; i < kWords; ++i) differences |= word(one, i) ^ word(other, i);
  return differences == 0;
}

}  // namespace

RecordedGroup::RecordedGroup(std::string group_name, int group_rank,
                             const std::vector<int>& global_ranks, const RankBoard* shown_on)
    : name(std::move(group_name)),
      rank(group_rank),
      size(static_cast<std::int32_t>(global_ranks.size())),
      first_rank(global_ranks.front()),
      rank_stride(size > 1 ? global_ranks[1] - global_ranks[0] : 1),
      board(shown_on),
      number(next_group_number()) {
  for (const int member : global_ranks)
    members_hash = (members_hash ^ static_cast<std::uint32_t>(member)) * 0x01000193U;  // FNV-1a
  for (std::size_t i = 1; i < global_ranks.size(); ++i)
    if (global_ranks[i] - global_ranks[i - 1] != rank_stride) rank_stride = 0;
}

RankRecord::RankRecord(std::shared_ptr<rendezvous::JobPage> job_page, int local_rank)
    : job_page_(std::move(job_page)) {
  if (!job_page_ || local_rank >= job_page_->slot_count()) return;
  slot_ = &job_page_->slot(local_rank);
  history_ = job_page_->open_history(local_rank);
  is_exact_ = !history_.empty() && job_page_->times() == rendezvous::HistoryPlan::Times::exact;
  begun_ = slot_->operations.load();
  told_in_history_.resize(history_.size());
  if (!history_.empty()) next_entry_ = begun_ % history_.size();
  slot_->passing.store(0);  // an image that this one has replaced may have been in a call
}

void RankRecord::attach(RankBoard& board) {
  const std::scoped_lock lock(mutex_);
  // A new board blames nobody: what befell the older groups is not this one's affair.
  shown_.emplace_back().board = &board;
  forget_told();
}

void RankRecord::detach(RankBoard& board) {
  const std::scoped_lock lock(mutex_);
  forget_told();
  // What was done last stays known.
  if (newest_->board == &board) {
    shown_.front().line = newest_->line;
    newest_ = &shown_.front();
  }
  std::erase_if(shown_, [&](const Shown& shown) { return shown.board == &board; });
}

RankRecord::Shown& RankRecord::shown_on(const RankBoard* board) {
  for (Shown& shown : shown_)
    if (shown.board == board) return shown;
  return shown_.front();
}

RankRecord::Shown* RankRecord::shown_of(std::uint64_t number) {
  for (Shown& shown : shown_)
    if (shown.number == number) return &shown;
  return nullptr;
}

std::int64_t RankRecord::now_ns() const {
  return is_exact_ ? monotonic_ns() : recent_ns();
}

template <typename Change>
void RankRecord::update(std::uint64_t number, Change change) {
  // A ring has overwritten the entry of an older operation.
  if (slot_ == nullptr) return;
  const std::uint64_t age = begun_ - number;
  if (age < rendezvous::kOperationRing) {
    const std::size_t place = (number - 1) % rendezvous::kOperationRing;
    change(slot_->ring[place]);
    told_in_ring_[place] = 0;
  }
  if (age < history_.size()) {
    const std::size_t place = (number - 1) % history_.size();
    change(history_[place].operation);
    told_in_history_[place] = 0;
  }
}

inline const RankRecord::Told& RankRecord::told_of(const Fingerprint& print,
                                                   const RecordedGroup& group) {
  const auto is_of = [&](const Told& told) {
    return told.group == group.number && are_of_one_place(told.print, print);
  };
  if (is_of(*newest_told_)) [[likely]]
    return *newest_told_;
  Told& next = told_[newest_told_->next];
  if (is_of(next)) return *(newest_told_ = &next);
  Told& found = find_told(print, group);
  newest_told_->next = static_cast<std::size_t>(&found - told_.data());
  return *(newest_told_ = &found);
}

RankRecord::Told& RankRecord::find_told(const Fingerprint& print, const RecordedGroup& group) {
  std::uint64_t words[sizeof(Fingerprint) / sizeof(std::uint64_t)];
  std::memcpy(words, &print, sizeof(words));
  std::uint64_t mixed = group.number;
  for (std::size_t i = 1; i < std::size(words); ++i) mixed ^= words[i];
  Told& told = told_[(mixed * 0x9e3779b97f4a7c15U) >> 32 & (kTold - 1)];
  if (told.group != group.number || !are_of_one_place(told.print, print)) tell(told, print, group);
  return told;
}

void RankRecord::tell(Told& told, const Fingerprint& print, const RecordedGroup& group) {
  // 0 says that something else was written.
  if (++told_count_ == 0) ++told_count_;
  told = {print, group.number, told_count_, &shown_on(group.board), 0, {}};
  rendezvous::HistoryEntry& entry = told.entry;
  copy_text(entry.operation.name, op_kind_name(print.kind));
  copy_text(entry.operation.group, group.name);
  std::memcpy(entry.call_site, print.site, sizeof print.site);
  copy_text(entry.dtype, tensors::dtype_short_name(print.dtype));
  copy_text(entry.reduce_op, recorded_name(print));
  entry.elements = print.counts & kMostElements;
  entry.root = print.root;
  entry.group_rank = group.rank;
  entry.group_size = group.size;
  entry.first_rank = group.first_rank;
  entry.rank_stride = group.rank_stride;
  entry.members_hash = group.members_hash;
  entry.tag = is_message(print.kind) ? print.shape : 0;
}

/// The newest operation.
inline void RankRecord::write(const Fingerprint& fingerprint, const RecordedGroup& group,
                              std::uint64_t bytes, const Times& times) {
  ++begun_;
  const Told& told = told_of(fingerprint, group);
  write_line(told, fingerprint, group, times);
  write_entries(told, fingerprint.sequence, bytes, times);
}

inline void RankRecord::write_line(const Told& told, const Fingerprint& fingerprint,
                                   const RecordedGroup& group, const Times& times) {
  newest_ = told.shown;
  newest_->number = begun_;
  BoardLine& line = newest_->line;
  line.started_ns = times.started_ns;
  line.ended_ns = times.ended_ns;
  line.waiting_for = -1;
  if (newest_->told == told.number) {
    line.fingerprint.sequence = fingerprint.sequence;
    if (newest_->board != nullptr) newest_->board->write_next(line);
  } else {
    newest_->told = told.number;
    line.fingerprint = fingerprint;
    copy_text(line.group, group.name);
    newest_->write();
  }
}

inline void RankRecord::write_entries(const Told& told, std::uint64_t sequence, std::uint64_t bytes,
                                      const Times& times) {
  if (slot_ == nullptr) return;
  // Where they lie: a load of what was just stored in smaller pieces would wait for the stores.
  const auto set = [&](rendezvous::Operation& operation) {
    operation.sequence = sequence;
    operation.started_ns = times.started_ns;
    operation.ended_ns = times.page_end;
    operation.bytes = bytes;
  };
  const std::size_t place = (begun_ - 1) % rendezvous::kOperationRing;
  rendezvous::Operation& operation = slot_->ring[place];
  if (std::exchange(told_in_ring_[place], told.number) != told.number)
    operation = told.entry.operation;
  set(operation);
  slot_->operations.store(begun_, std::memory_order_release);
  // The slot has one writer.
  slot_->bytes.store(slot_->bytes.load(std::memory_order_relaxed) + bytes,
                     std::memory_order_relaxed);
  if (history_.empty()) return;
  rendezvous::HistoryEntry& entry = history_[next_entry_];
  if (std::exchange(told_in_history_[next_entry_], told.number) != told.number) entry = told.entry;
  if (++next_entry_ == history_.size()) next_entry_ = 0;
  set(entry.operation);
  slot_->recorded.store(begun_, std::memory_order_release);
}

void RankRecord::set_state(RankState state) {
  if (slot_ != nullptr)
    slot_->state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
}

std::uint64_t RankRecord::begin(const Fingerprint& fingerprint, const RecordedGroup& group,
                                std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  ++active_;
  write(fingerprint, group, bytes, {now_ns(), 0, 0});
  set_state(RankState::kInCollective);
  return begun_;
}

std::uint64_t RankRecord::pass(const Fingerprint& fingerprint, const RecordedGroup& group,
                               std::uint64_t bytes, std::int64_t started_ns) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t now = started_ns != 0 ? started_ns : now_ns();
  // A rank that is killed before passed() has not ended it. The word says so at less cost than a
  // second write to both rings. Another thread may have it, in another group.
  const bool is_marked =
      slot_ != nullptr && !is_exact_ && slot_->passing.load(std::memory_order_acquire) == 0;
  if (is_marked) slot_->passing.store(begun_ + 1, std::memory_order_relaxed);
  write(fingerprint, group, bytes, {now, now, is_marked ? now : 0});
  return begun_;
}

std::uint64_t RankRecord::pass(std::span<const ShortMessage> batch, const RecordedGroup& group,
                               std::int64_t started_ns) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t started = started_ns != 0 ? started_ns : now_ns();
  const std::int64_t over = started_ns != 0 ? now_ns() : started;
  // As above: the word can tell of one, the first that is to be over.
  bool is_free =
      slot_ != nullptr && !is_exact_ && slot_->passing.load(std::memory_order_acquire) == 0;
  const auto is_send = [](const ShortMessage& message) {
    return message.fingerprint.kind == OpKind::send;
  };
  const std::uint64_t last = begun_ + batch.size();
  const std::uint64_t first_receive =
      begun_ + 1 + static_cast<std::uint64_t>(std::ranges::count_if(batch, is_send));
  // The newest is what others are told of: the receives, in which the rank may wait, come last.
  for (const bool are_over : {true, false}) {
    for (const ShortMessage& message : batch) {
      if (is_send(message) != are_over) continue;
      const bool is_marked = !are_over && std::exchange(is_free, false);
      if (is_marked) slot_->passing.store(begun_ + 1, std::memory_order_relaxed);
      const Times times{started, over, are_over || is_marked ? over : 0};
      ++begun_;
      const Told& told = told_of(message.fingerprint, group);
      if (begun_ == last) write_line(told, message.fingerprint, group, times);
      write_entries(told, message.fingerprint.sequence, message.buffer.bytes(), times);
    }
  }
  return first_receive;
}

void RankRecord::write_end(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t now = now_ns();
  update(number, [now](rendezvous::Operation& operation) { operation.ended_ns = now; });
}

void RankRecord::go_on(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  update(number, [](rendezvous::Operation& operation) { operation.ended_ns = 0; });
  if (slot_ != nullptr && slot_->passing.load(std::memory_order_relaxed) == number)
    slot_->passing.store(0, std::memory_order_release);
  ++active_;
  set_state(RankState::kInCollective);
  Shown* const shown = shown_of(number);
  if (shown == nullptr) return;
  shown->line.ended_ns = 0;
  shown->write();
}

void RankRecord::waiting_for(std::uint64_t number, int global_rank) {
  const std::scoped_lock lock(mutex_);
  update(number, [&](rendezvous::Operation& operation) { operation.waiting_for = global_rank; });
  Shown* const shown = shown_of(number);
  if (shown == nullptr || shown->line.waiting_for == global_rank) return;
  shown->line.waiting_for = global_rank;
  shown->write();
}

void RankRecord::end(std::uint64_t number, Outcome outcome) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t now = now_ns();
  update(number, [&](rendezvous::Operation& operation) {
    operation.ended_ns = now;
    operation.failed = outcome == Outcome::failed ? 1 : 0;
  });
  if (--active_ == 0) set_state(RankState::kRunning);
  Shown* const shown = shown_of(number);
  if (shown == nullptr) return;
  shown->line.ended_ns = now;
  if (shown->board != nullptr) shown->board->write_end(now);
}

void RankRecord::set_awaited(const Fingerprint& fingerprint, const RecordedGroup& group,
                             int by_global_rank) {
  const std::scoped_lock lock(mutex_);
  awaited_.push_back({group.number, fingerprint.kind, fingerprint.sequence, group.name,
                      by_global_rank, monotonic_ns()});
  if (awaited_.size() == 1) show_awaited();
}

void RankRecord::end_awaited(const RecordedGroup& group) {
  const std::scoped_lock lock(mutex_);
  if (std::erase_if(awaited_, [&](const Awaited& one) { return one.group == group.number; }) != 0)
    show_awaited();
}

/// The page shows the first.
void RankRecord::show_awaited() {
  if (slot_ == nullptr) return;
  slot_->awaited_since_ns.store(0, std::memory_order_release);
  if (awaited_.empty()) return;
  const Awaited& first = awaited_.front();
  copy_text(slot_->awaited_call.name, op_kind_name(first.kind));
  copy_text(slot_->awaited_call.group, first.group_name);
  slot_->awaited_sequence.store(first.sequence, std::memory_order_relaxed);
  slot_->awaited_by.store(first.by, std::memory_order_relaxed);
  slot_->awaited_since_ns.store(first.since_ns, std::memory_order_release);
}

void RankRecord::set_victim_of(int global_rank) {
  if (slot_ != nullptr) slot_->victim_of.store(global_rank);
  const std::scoped_lock lock(mutex_);
  for (Shown& shown : shown_) {
    shown.line.victim_of = global_rank;
    shown.write();
  }
}

BoardLine RankRecord::line() {
  const std::scoped_lock lock(mutex_);
  return newest_->line;
}

std::shared_ptr<RankRecord> record_of(const GroupOptions& options) {
  return options.record ? options.record
                        : std::make_shared<RankRecord>(options.job_page, options.local_rank);
}

}  // namespace dtrun::collectives
