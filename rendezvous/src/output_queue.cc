#include "output_queue.h"

#include "dtrun/base/check.h"

namespace dtrun::rendezvous {
namespace {

// Below it, copying a value is cheaper than a piece of its own in the system call.
constexpr std::size_t kSharedFrom = 4096;
// What an idle connection may keep of its buffer.
constexpr std::size_t kKeptCapacity = 4096;

}  // namespace

std::string& OutputQueue::tail() {
  if (chunks_.empty() || chunks_.back().shared) chunks_.emplace_back();
  return chunks_.back().own;
}

void OutputQueue::append_length_and(std::string_view text) {
  append_text(tail(), text);
  size_ += sizeof(std::uint64_t) + text.size();
}

void OutputQueue::append_length_and(const Value& value) {
  if (!value) return append_length_and(std::string_view());
  if (value->size() < kSharedFrom) return append_length_and(std::string_view(*value));
  append_integer<std::uint64_t>(value->size());
  chunks_.push_back({{}, value});
  size_ += value->size();
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

void OutputQueue::pop(std::size_t bytes) {
  DT_CHECK(bytes <= size_);
  size_ -= bytes;
  while (bytes > 0) {
    Chunk& chunk = chunks_[first_];
    const std::size_t left = chunk.view().size() - first_sent_;
    if (bytes < left) {
      first_sent_ += bytes;
      return;
    }
    bytes -= left;
    chunk.shared.reset();
    ++first_;
    first_sent_ = 0;
  }
  if (size_ > 0) return;
  const bool keep = !chunks_.empty() && chunks_.front().own.capacity() <= kKeptCapacity;
  chunks_.resize(keep ? 1 : 0);
  if (keep) chunks_.front().own.clear();
  first_ = 0;
}

}  // namespace dtrun::rendezvous
