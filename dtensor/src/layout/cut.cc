#include "dtrun/dtensor/layout/cut.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

std::string sizes_text(const Cut::Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "{" + text + "}";
}

std::int64_t checked_total(const Cut::Sizes& sizes) {
  if (sizes.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a ragged shard needs a size for each rank",
                "there is none", "Shard(dim) cuts as torch.chunk does");
  }
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    if (size >= 0 && size <= std::numeric_limits<std::int64_t>::max() - total) {
      total += size;
      continue;
    }
    throw Error(ErrorCode::kInvalidArgument,
                "a rank cannot have " + std::to_string(size) + " of the elements of a dim",
                "the sizes of the shard are " + sizes_text(sizes),
                "give how many each rank has, 0 for none");
  }
  return total;
}

}  // namespace

/// By sizes and by number. Those that nobody owns stay a while: layouts that were made of them may
/// still be read.
class CutTable {
 public:
  static CutTable& instance() {
    static CutTable& table = *new CutTable;  // outlives every tensor
    return table;
  }

  base::Counted<Cut> intern(Cut::Sizes sizes) {
    const std::int64_t total = checked_total(sizes);
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = cuts_.try_emplace(std::move(sizes));
    std::unique_ptr<Cut>& cut = found->second;
    if (!is_new) return share_locked(*cut);
    try {
      const Cut::Number number = next_number();
      cut.reset(new Cut(found->first, total, number));
      place_of(number).store(cut.get(), std::memory_order_release);
    } catch (...) {
      cuts_.erase(found);
      throw;
    }
    return base::Counted<Cut>(cut.get());
  }

  const Cut& at(Cut::Number number) const { return *found(number); }

  base::Counted<Cut> share(Cut::Number number) {
    Cut* const cut = found(number);
    if (cut->share_if_owned()) return base::Counted<Cut>(cut);
    const std::lock_guard lock(mutex_);
    return share_locked(*found(number));
  }

  void drop(Cut* cut) {
    if (cut->drop_unless_last()) return;
    const std::lock_guard lock(mutex_);
    if (cut->owners_.fetch_sub(1) != 1) return;
    if (cut->may_go_) unowned_.erase(cut->place_);
    cut->place_ = unowned_.insert(unowned_.end(), cut);
    cut->may_go_ = true;
    while (unowned_.size() > kMostUnowned) forget_first();
  }

  std::size_t kept() {
    const std::lock_guard lock(mutex_);
    return cuts_.size();
  }

 private:
  static constexpr std::size_t kMostUnowned = 4096;
  static constexpr std::size_t kPageBits = 10;
  static constexpr std::size_t kPageSize = 1U << kPageBits;
  static constexpr std::size_t kPages = 1U << (Cut::kNumberBits - kPageBits);
  using Page = std::array<std::atomic<Cut*>, kPageSize>;

  /// Those that are owned again have left in all but the list.
  void forget_first() {
    Cut* const cut = unowned_.front();
    unowned_.pop_front();
    cut->may_go_ = false;
    if (cut->owners() > 0) return;
    place_of(cut->number()).store(nullptr, std::memory_order_release);
    free_numbers_.push_back(cut->number());
    cuts_.erase(cuts_.find(cut->sizes()));
  }

  base::Counted<Cut> share_locked(Cut& cut) {
    cut.owners_.fetch_add(1);
    return base::Counted<Cut>(&cut);
  }

  Cut::Number next_number() {
    if (!free_numbers_.empty()) {
      const Cut::Number number = free_numbers_.front();
      free_numbers_.pop_front();
      return number;
    }
    if (highest_ + 1 == kPages * kPageSize) {
      throw Error(ErrorCode::kUnavailable, "no room for another ragged shard",
                  std::to_string(highest_) + " with other sizes are in use",
                  "drop the tensors that are not needed any more");
    }
    const Cut::Number number = ++highest_;
    std::atomic<Page*>& page = pages_[number >> kPageBits];
    if (page.load(std::memory_order_relaxed) == nullptr) page.store(new Page{});
    return number;
  }

  std::atomic<Cut*>& place_of(Cut::Number number) const {
    return (*pages_[number >> kPageBits].load(std::memory_order_acquire))[number % kPageSize];
  }
  Cut* found(Cut::Number number) const {
    Cut* const cut = place_of(number).load(std::memory_order_acquire);
    DT_CHECK(cut != nullptr);  // else a Layout has outlived the Placements or Spec that it is of
    return cut;
  }

  std::array<std::atomic<Page*>, kPages> pages_{};
  std::mutex mutex_;  ///< guards what stands below
  std::map<Cut::Sizes, std::unique_ptr<Cut>> cuts_;
  std::list<Cut*> unowned_;  ///< since the longest first
  std::list<Cut::Number> free_numbers_;
  Cut::Number highest_ = 0;
};

Cut::Cut(const Sizes& sizes, std::int64_t total, Number number)
    : sizes_(sizes), total_(total), number_(number) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Chunk even = chunk_of(total, static_cast<int>(sizes.size()), static_cast<int>(i));
    is_even_ = is_even_ && even.size == sizes[i];
    largest_ = std::max(largest_, sizes[i]);
    offsets_.push_back(sizes[i] == 0 ? total : offset);
    offset += sizes[i];
  }
}

base::Counted<Cut> Cut::of(Sizes sizes) {
  return CutTable::instance().intern(std::move(sizes));
}

const Cut& Cut::at(Number number) {
  return CutTable::instance().at(number);
}

base::Counted<Cut> Cut::share(Number number) {
  return CutTable::instance().share(number);
}

std::size_t Cut::kept() {
  return CutTable::instance().kept();
}

Chunk Cut::chunk(int index) const {
  const auto i = static_cast<std::size_t>(index);
  return {offsets_[i], sizes_[i]};
}

void Cut::drop(Cut* cut) noexcept {
  CutTable::instance().drop(cut);
}

}  // namespace dtrun::dtensor
