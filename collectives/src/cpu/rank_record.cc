#include "rank_record.h"

#include <time.h>

#include <algorithm>
#include <cstring>

namespace dtrun::collectives::cpu {

using rendezvous::RankState;

namespace {

template <std::size_t N>
void copy_text(char (&target)[N], std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

/// CLOCK_MONOTONIC_COARSE: a few milliseconds behind monotonic_ns() at a quarter of its cost. The
/// times are for people, and an operation may take less time than an exact clock read.
std::int64_t recent_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

RankRecord::RankRecord(RankBoard& board, std::shared_ptr<rendezvous::JobPage> job_page,
                       int local_rank)
    : board_(board), job_page_(std::move(job_page)) {
  if (!job_page_ || local_rank >= job_page_->slot_count()) return;
  slot_ = &job_page_->slot(local_rank);
  begun_ = slot_->operations.load();
}

rendezvous::Operation* RankRecord::entry(std::uint64_t number) {
  // The ring has overwritten the entry of an older operation.
  if (slot_ == nullptr || begun_ - number >= rendezvous::kOperationRing) return nullptr;
  return &slot_->ring[(number - 1) % rendezvous::kOperationRing];
}

/// The newest operation, as line_'s times say it is.
void RankRecord::write(const Fingerprint& fingerprint, std::string_view group,
                       std::uint64_t bytes) {
  ++begun_;
  line_.fingerprint = fingerprint;
  copy_text(line_.group, group);
  line_.waiting_for = -1;
  board_.write(line_);
  rendezvous::Operation* operation = entry(begun_);
  if (operation == nullptr) return;
  *operation = rendezvous::Operation{};
  copy_text(operation->name, op_kind_name(fingerprint.kind));
  copy_text(operation->group, group);
  operation->sequence = fingerprint.sequence;
  operation->started_ns = line_.started_ns;
  operation->ended_ns = line_.ended_ns;
  operation->bytes = bytes;
  slot_->operations.store(begun_, std::memory_order_release);
}

void RankRecord::set_state(RankState state) {
  if (slot_ != nullptr)
    slot_->state.store(static_cast<std::uint32_t>(state), std::memory_order_relaxed);
}

std::uint64_t RankRecord::begin(const Fingerprint& fingerprint, std::string_view group,
                                std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  line_.started_ns = recent_ns();
  line_.ended_ns = 0;
  ++active_;
  write(fingerprint, group, bytes);
  set_state(RankState::kInCollective);
  return begun_;
}

std::uint64_t RankRecord::pass(const Fingerprint& fingerprint, std::string_view group,
                               std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  line_.started_ns = recent_ns();
  line_.ended_ns = line_.started_ns;
  write(fingerprint, group, bytes);
  return begun_;
}

void RankRecord::go_on(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  if (rendezvous::Operation* operation = entry(number)) operation->ended_ns = 0;
  ++active_;
  set_state(RankState::kInCollective);
  if (number != begun_) return;
  line_.ended_ns = 0;
  board_.write(line_);
}

void RankRecord::waiting_for(std::uint64_t number, int global_rank) {
  const std::scoped_lock lock(mutex_);
  if (rendezvous::Operation* operation = entry(number)) operation->waiting_for = global_rank;
  if (number != begun_ || line_.waiting_for == global_rank) return;
  line_.waiting_for = global_rank;
  board_.write(line_);
}

void RankRecord::end(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t now = recent_ns();
  if (rendezvous::Operation* operation = entry(number)) operation->ended_ns = now;
  if (--active_ == 0) set_state(RankState::kRunning);
  if (number != begun_) return;
  line_.ended_ns = now;
  board_.write_end(now);
}

void RankRecord::set_victim_of(int global_rank) {
  if (slot_ != nullptr) slot_->victim_of.store(global_rank);
  const std::scoped_lock lock(mutex_);
  line_.victim_of = global_rank;
  board_.write(line_);
}

BoardLine RankRecord::line() {
  const std::scoped_lock lock(mutex_);
  return line_;
}

}  // namespace dtrun::collectives::cpu
