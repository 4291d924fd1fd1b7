// Cut: how many elements of a dim each rank along a mesh axis has, where that is not torch.chunk's
// rule. The process has one body for all cuts that are equal; its number stands in layouts.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "dtrun/base/counted.h"
#include "dtrun/dtensor/layout/chunk.h"

namespace dtrun::dtensor {

class Cut : public base::Count {
 public:
  /// From 1 on; 0 in a layout stands for torch.chunk's rule. Another process has other numbers.
  using Number = std::uint32_t;
  static constexpr int kNumberBits = 20;
  using Sizes = std::vector<std::int64_t>;

  /// @throws Error kInvalidArgument: no size, a negative one, a sum that no dim has; kUnavailable:
  /// a million others are in use
  static base::Counted<Cut> of(Sizes sizes);
  /// Reads without a lock. A cut that nobody owns any more keeps its number until some thousand
  /// others have been dropped after it (DT_CHECK).
  static const Cut& at(Number number);
  /// One more owner of it.
  static base::Counted<Cut> share(Number number);
  /// How many the process keeps, owned or not.
  static std::size_t kept();

  const Sizes& sizes() const { return sizes_; }
  std::int64_t total() const { return total_; }
  std::int64_t largest() const { return largest_; }
  /// torch.chunk would give the same.
  bool is_even() const { return is_even_; }
  Chunk chunk(int index) const;
  Number number() const { return number_; }

 private:
  friend class CutTable;
  friend class base::Counted<Cut>;
  Cut(const Sizes& sizes, std::int64_t total, Number number);
  static void drop(Cut* cut) noexcept;

  const Sizes& sizes_;
  Sizes offsets_;
  const std::int64_t total_;
  std::int64_t largest_ = 0;
  bool is_even_ = true;
  const Number number_;
  std::list<Cut*>::iterator place_;  ///< among those that may go, where `may_go_`
  bool may_go_ = false;
};

}  // namespace dtrun::dtensor
