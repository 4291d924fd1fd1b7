// CallKey: what a plan of a call is remembered by: attributes that affect layouts, and specs, as
// numbers. Without an allocation up to kFew of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::dtensor {

class CallKey {
 public:
  static constexpr std::size_t kFew = 12;

  void push_back(std::int64_t number) {
    if (count_ < kFew) {
      few_[count_] = number;
    } else {
      if (count_ == kFew) many_.assign(few_.begin(), few_.end());
      many_.push_back(number);
    }
    ++count_;
  }
  std::span<const std::int64_t> numbers() const {
    return count_ <= kFew ? std::span<const std::int64_t>(few_.data(), count_)
                          : std::span<const std::int64_t>(many_);
  }
  operator std::span<const std::int64_t>() const { return numbers(); }

  friend bool operator==(const CallKey& a, const CallKey& b) {
    return std::ranges::equal(a.numbers(), b.numbers());
  }

 private:
  std::array<std::int64_t, kFew> few_ = {};
  std::size_t count_ = 0;
  std::vector<std::int64_t> many_;  ///< all of them, where they are more
};

}  // namespace dtrun::dtensor
