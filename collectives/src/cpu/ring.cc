#include "ring.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "dtrun/base/error.h"

namespace dtrun::collectives::cpu {

namespace {
// Large messages are published piece by piece, so that both sides copy at the same time.
constexpr std::size_t kPublishBytes = 32 << 10;
// Of what a ring cannot hold, one call moves so much: a rank that sends and receives does both in
// turn.
constexpr std::size_t kBurstBytes = 512 << 10;
// A producer is told what is read after so many bytes, or this part of the ring where that is less.
// The rest looks taken to it even while the ring is empty.
constexpr std::size_t kUntoldBytes = 4 << 10;
constexpr std::size_t kUntoldPart = 8;
// The producer touches this part of the ring at once in the first turn: a page by itself takes as
// long as several short messages. Never all of it, which may never be used.
constexpr std::size_t kTouchedPart = 16;
// Of a lent payload: the group's lock is held meanwhile.
constexpr std::size_t kFetchBytes = 1 << 20;

std::size_t untold_bytes(const RingHeader& ring) {
  return std::min<std::size_t>(ring.capacity / kUntoldPart, kUntoldBytes);
}
}  // namespace

void RingSendChannel::copy(std::byte* to, Bytes bytes) {
  if (SharedCopy::is_for(bytes.size())) {
    copies_.copy(to, bytes.data(), bytes.size());
  } else if (!bytes.empty()) {
    std::memcpy(to, bytes.data(), bytes.size());
  }
}

/// @param end the position up to which is written next
void RingSendChannel::touch_until(std::uint64_t end) {
  constexpr std::uintptr_t kPage = 4096;
  const auto page_from = [&](std::uint64_t position) {
    const auto address = reinterpret_cast<std::uintptr_t>(ring_.bytes() + position);
    return (address + kPage - 1) / kPage * kPage;
  };
  while (touched_ < std::min(end, ring_.capacity)) {
    [[maybe_unused]] const std::uintptr_t begin = page_from(touched_);
    touched_ += std::max<std::uint64_t>(ring_.capacity / kTouchedPart, 1);
#ifdef MADV_POPULATE_WRITE
    // A kernel that cannot gives each page when it is written.
    const std::uintptr_t past = page_from(std::min(touched_, ring_.capacity));
    ::madvise(reinterpret_cast<void*>(begin), past - begin, MADV_POPULATE_WRITE);
#endif
  }
  if (touched_ >= ring_.capacity) touched_ = std::numeric_limits<std::uint64_t>::max();
}

std::size_t RingSendChannel::put(Bytes bytes) {
  if (written_ + bytes.size() > touched_) [[unlikely]]
    touch_until(written_ + bytes.size());
  const std::size_t position = written_ & (ring_.capacity - 1);
  const std::size_t until_end = std::min<std::size_t>(bytes.size(), ring_.capacity - position);
  copy(ring_.bytes() + position, bytes.first(until_end));
  copy(ring_.bytes(), bytes.subspan(until_end));
  written_ += bytes.size();
  return bytes.size();
}

/// Takes the lines of the next short message back from the consumer's cache while the caller does
/// something else.
void RingSendChannel::claim_next_lines() const {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64, kLines = 3;
  for (std::size_t line = 0; line < kLines; ++line) {
    const std::size_t position = (written_ + line * kLine) & (ring_.capacity - 1);
    asm volatile("prefetchw %0" : : "m"(ring_.bytes()[position]));
  }
#endif
  claim_next_mark();
}

void RingSendChannel::claim_next_mark() const {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(ring_.mark(told_ + 1)));
#endif
}

bool RingSendChannel::has_room(std::size_t bytes) {
  if (ring_.capacity - (written_ - read_) >= bytes) return true;
  read_ = ring_.read.load(std::memory_order_seq_cst);
  return ring_.capacity - (written_ - read_) >= bytes;
}

std::size_t RingSendChannel::write(Bytes first, Bytes second) {
  const std::size_t all = first.size() + second.size();
  const std::size_t wanted = all > ring_.capacity ? std::min(all, kBurstBytes) : all;
  std::size_t taken = 0;
  while (taken < wanted) {
    std::size_t space = ring_.capacity - (written_ - read_);
    if (space < wanted - taken) {
      read_ = ring_.read.load(std::memory_order_seq_cst);
      space = ring_.capacity - (written_ - read_);
    }
    if (space == 0) break;
    const std::size_t budget = std::min({space, kPublishBytes, wanted - taken});
    std::size_t put_now = 0;
    if (taken < first.size())
      put_now += put(first.subspan(taken, std::min(first.size() - taken, budget)));
    if (taken + put_now >= first.size() && put_now < budget) {
      const std::size_t offset = taken + put_now - first.size();
      put_now += put(second.subspan(offset, std::min(second.size() - offset, budget - put_now)));
    }
    taken += put_now;
    tell_written();
  }
  claim_next_lines();
  return taken;
}

// The consumer reads the letter alone as a rule: the bytes are written while that is on its way,
// and their lines stay here.
void RingSendChannel::write_letter(const Letter& letter, Bytes message) {
  RingHeader::Mark& mark = ring_.mark(told_ + 1);
  // Release: who reads any of what is behind it also reads this, which is no number of the mark.
  mark.letter_number.store(told_, std::memory_order_relaxed);
  mark.letter_end.store(written_ + message.size(), std::memory_order_release);
  mark.letter_head.store(letter.head, std::memory_order_release);
  for (std::size_t word = 0; word < letter.words(); ++word)
    mark.letter_payload[word].store(letter.payload[word], std::memory_order_release);
  mark.letter_number.store(told_ + 1, std::memory_order_release);
  put(message);
  mark.letter_written.store(written_, std::memory_order_release);
  mark.letter_filled.store(++told_, kBeforeMutex);
  if (RingHeader::is_told_both_ways(told_)) [[unlikely]] {
    mark.written.store(written_, std::memory_order_release);
    mark.number.store(told_, std::memory_order_release);
  }
  claim_next_mark();
}

void RingSendChannel::tell_written() {
  RingHeader::Mark& mark = ring_.mark(++told_);
  // Release: who is behind may read this before the number of eight marks later is there.
  mark.written.store(written_, std::memory_order_release);
  mark.number.store(told_, std::memory_order_seq_cst);
  if (RingHeader::is_told_both_ways(told_)) [[unlikely]] {
    // No letter: its end is that of an earlier one.
    mark.letter_written.store(written_, std::memory_order_release);
    mark.letter_filled.store(told_, std::memory_order_release);
    mark.letter_number.store(told_, std::memory_order_release);
  }
  peer_.ring_sleepers();
}

// What the sender has not been told of is no room to it.
std::size_t RingReceiveChannel::most_at_once() const {
  return ring_.capacity - untold_bytes(ring_);
}

bool RingReceiveChannel::hear_written() {
  const RingHeader::Mark& mark = ring_.mark(heard_ + 1);
  const auto hear = [this](const auto& number, const auto& written) {
    const std::uint32_t told = number.load(std::memory_order_seq_cst);
    if (!is_news(told)) return false;
    heard_ = told;
    // A mark that was used again has told of more than the next ones that are still to be heard.
    written_ = std::max(written_, written.load(std::memory_order_acquire));
    return true;
  };
  return hear(mark.number, mark.written) ||
         (is_news(mark.letter_number.load(std::memory_order_seq_cst)) &&
          hear(mark.letter_filled, mark.letter_written));
}

bool RingReceiveChannel::has(std::size_t bytes) {
  while (written_ - read_ < bytes)
    if (!hear_written()) return false;
  return true;
}

bool RingReceiveChannel::empty() const {
  return written_ == read_ && std::ranges::all_of(ring_.marks, [this](const auto& mark) {
           return mark.written.load(std::memory_order_seq_cst) <= read_ &&
                  mark.letter_written.load(std::memory_order_seq_cst) <= read_;
         });
}

std::size_t RingReceiveChannel::read(std::span<std::byte> target) {
  if (target.size() > ring_.capacity) target = target.first(std::min(target.size(), kBurstBytes));
  std::size_t filled = 0;
  while (filled < target.size()) {
    if (!has(1)) break;
    const std::size_t position = read_ & (ring_.capacity - 1);
    const std::size_t count = std::min({target.size() - filled, std::size_t{written_ - read_},
                                        std::size_t{ring_.capacity - position}, kPublishBytes});
    std::memcpy(target.data() + filled, ring_.bytes() + position, count);
    filled += count;
    note_read(count);
  }
  return filled;
}

void RingReceiveChannel::note_read(std::size_t bytes) {
  read_ += bytes;
  // A producer that waits has filled the ring, so that this comes before all of it is read.
  if (read_ - published_ < untold_bytes(ring_)) return;
  ring_.read.store(read_, std::memory_order_seq_cst);
  published_ = read_;
  peer_.ring_sleepers();
}

const std::byte* RingReceiveChannel::front(std::size_t bytes) {
  const std::size_t position = read_ & (ring_.capacity - 1);
  return ring_.capacity - position >= bytes ? ring_.bytes() + position : nullptr;
}

const Letter* RingReceiveChannel::see_letter() {
  // What an earlier mark has told comes first.
  if (written_ != read_) return nullptr;
  const RingHeader::Mark& mark = ring_.mark(heard_ + 1);
  if (mark.letter_number.load(std::memory_order_acquire) != heard_ + 1) return nullptr;
  seen_.head = mark.letter_head.load(std::memory_order_acquire);
  for (std::size_t word = 0; word < seen_.words(); ++word)
    seen_.payload[word] = mark.letter_payload[word].load(std::memory_order_acquire);
  // Another end: it is no letter, or its bytes have been read already.
  const std::uint64_t end = mark.letter_end.load(std::memory_order_acquire);
  // Asked again last: the mark may be used again meanwhile.
  const bool is_whole = mark.letter_number.load(std::memory_order_acquire) == heard_ + 1;
  return is_whole && end == read_ + seen_.message_bytes() ? &seen_ : nullptr;
}

void RingReceiveChannel::drop_letter() {
  ++heard_;
  written_ += seen_.message_bytes();
  note_read(seen_.message_bytes());
}

void RingReceiveChannel::read_behind(std::size_t shown, std::span<std::byte> target) {
  const std::size_t position = (read_ + shown) & (ring_.capacity - 1);
  const std::size_t until_end = std::min<std::size_t>(target.size(), ring_.capacity - position);
  if (until_end != 0) std::memcpy(target.data(), ring_.bytes() + position, until_end);
  if (until_end != target.size())
    std::memcpy(target.data() + until_end, ring_.bytes(), target.size() - until_end);
  note_read(shown + target.size());
}

bool RingSendChannel::can_lend(Bytes payload) const {
  return ring_.fetches.load(std::memory_order_acquire) != 0 && PeerMemory::is_readable(payload);
}

std::size_t RingReceiveChannel::fetch(std::span<std::byte> target, std::uint64_t address) {
  if (broken_ || memory_ == nullptr) return 0;
  const std::span<std::byte> now = target.first(std::min(target.size(), kFetchBytes));
  const int error = memory_->read(now, address);
  // Asked after the copy: where the producer has failed, its memory may have held something else
  // already, or be gone. Not a load, which may come before the copy's.
  const bool is_withdrawn = ring_.withdrawn.fetch_or(0, std::memory_order_acq_rel) != 0;
  broken_ = is_withdrawn || error == ESRCH;
  if (broken_) return 0;
  if (error == 0) return now.size();
  throw base::system_error(fmt::format("read the memory of process {}", memory_->pid()), error);
}

void RingReceiveChannel::give_back() {
  ring_.returned.fetch_add(1, std::memory_order_seq_cst);
  peer_.ring_sleepers();
}

}  // namespace dtrun::collectives::cpu
