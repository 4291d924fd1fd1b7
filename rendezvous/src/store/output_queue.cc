#include "store/output_queue.h"

#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::rendezvous {
namespace {

// Below it, copying a value is cheaper than a piece of its own in the system call.
constexpr std::size_t kSharedFrom = 4096;
// So many requests' answers are gathered without growing the buffer.
constexpr std::size_t kFirstCapacity = 500;
// At this size another piece is begun: growing a text copies it, and both copies exist meanwhile.
constexpr std::size_t kMostOwn = 64 << 10;
// Sent chunks are cleared away by the dozen.
constexpr std::size_t kMostSentChunks = 64;

}  // namespace

std::string& OutputQueue::tail() {
  if (chunks_.empty() || chunks_.back().shared || chunks_.back().own.size() >= kMostOwn)
    add_chunk({});
  std::string& own = chunks_.back().own;
  // A single short answer, as to one of thousands of clients that are released, takes no heap
  // memory.
  if (chunks_.size() == 1 && !own.empty() && own.capacity() < kFirstCapacity) {
    charge_.set(charge_.bytes() - cost_of(own));
    own.reserve(kFirstCapacity);
    charge_.set(charge_.bytes() + cost_of(own));
  }
  return own;
}

void OutputQueue::add_chunk(Chunk chunk) {
  const std::size_t before = chunks_.capacity();
  chunks_.push_back(std::move(chunk));
  charge_.set(charge_.bytes() + (chunks_.capacity() - before) * sizeof(Chunk));
}

void OutputQueue::append_length_and(std::string_view text) {
  append_own([&](std::string& own) { append_text(own, text); });
}

void OutputQueue::append_length_and(const Value& value) {
  if (!value) return append_length_and(std::string_view());
  if (value.size() < kSharedFrom) return append_length_and(*value);
  append_integer<std::uint64_t>(value.size());
  add_chunk({{}, value});
  size_ += value.size();
}

std::size_t OutputQueue::front(iovec* pieces, std::size_t count) const {
  std::size_t used = 0;
  std::size_t skip = first_sent_;
  for (std::size_t i = first_; i < chunks_.size() && used < count; ++i) {
    const std::string_view view = chunks_[i].view().substr(skip);
    skip = 0;
    pieces[used++] = {const_cast<char*>(view.data()), view.size()};
  }
  return used;
}

void OutputQueue::forget(Chunk& chunk) {
  charge_.set(charge_.bytes() - cost_of(chunk.own));
  chunk = {};
}

void OutputQueue::pop(std::size_t bytes) {
  DT_CHECK(bytes <= size_);
  size_ -= bytes;
  while (bytes > 0) {
    Chunk& chunk = chunks_[first_];
    const std::size_t left = chunk.view().size() - first_sent_;
    if (bytes < left) {
      first_sent_ += bytes;
      break;
    }
    bytes -= left;
    forget(chunk);
    ++first_;
    first_sent_ = 0;
  }
  if (size_ == 0) {
    std::vector<Chunk>().swap(chunks_);
    charge_.set(0);
    first_ = 0;
  } else if (first_ >= kMostSentChunks) {
    chunks_.erase(chunks_.begin(), chunks_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

}  // namespace dtrun::rendezvous
