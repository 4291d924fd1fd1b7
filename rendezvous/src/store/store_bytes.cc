#include "store/store_bytes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace dtrun::rendezvous {
namespace {

// Up to this size the room is doubled when there is too little, above it an eighth is added,
// because the memory is charged.
constexpr std::size_t kDoubledTo = 1 << 20;

std::size_t roomier(std::size_t capacity) {
  return capacity < kDoubledTo ? 2 * capacity : capacity + capacity / 8;
}

}  // namespace

StoreBytes::StoreBytes(StoreMemory& memory, std::string_view text) : StoreBytes(memory) {
  assign(text);
}

StoreBytes::StoreBytes(StoreBytes&& other) noexcept
    : memory_(other.memory_), data_(inline_), size_(other.size_) {
  std::memcpy(inline_, other.inline_, sizeof inline_);
  if (!other.is_inline()) data_ = other.data_;
  other.data_ = other.inline_;
  other.size_ = 0;
}

StoreBytes::~StoreBytes() {
  memory_.give_back(claimed());
  if (!is_inline()) std::free(data_);
}

// The caller accounts for the memory.
void StoreBytes::move_to(std::size_t capacity) {
  char* const moved = static_cast<char*>(std::realloc(is_inline() ? nullptr : data_, capacity));
  if (moved == nullptr) throw std::bad_alloc();
  if (is_inline()) std::memcpy(moved, inline_, size_);
  data_ = moved;
  capacity_ = capacity;
}

void StoreBytes::reserve(std::size_t wanted, StoreMemory::Use use) {
  if (wanted <= capacity()) return;
  memory_.claim(wanted - claimed(), use);
  move_to(wanted);
}

void StoreBytes::assign(std::string_view text) {
  reserve(text.size(), StoreMemory::Use::kKept);
  size_ = text.copy(data_, text.size());
}

void StoreBytes::append(std::string_view text) {
  const std::size_t needed = size_ + text.size();
  if (needed > capacity()) {
    const std::size_t wanted = std::max(needed, roomier(capacity()));
    reserve(memory_.has_room(wanted - claimed()) ? wanted : needed, StoreMemory::Use::kKept);
  }
  text.copy(data_ + size_, text.size());
  size_ = needed;
}

void StoreBytes::keep_only(std::string_view part) {
  std::memmove(data_, part.data(), part.size());
  size_ = part.size();
  if (is_inline() || capacity_ - size_ <= size_ / 64) return;
  const std::size_t before = capacity_;
  move_to(std::max(size_, sizeof inline_));
  memory_.give_back(before - capacity_);
}

}  // namespace dtrun::rendezvous
