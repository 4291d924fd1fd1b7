// Cut: the number of elements of a dim on each rank along a mesh axis, for ragged shards, which do
// not follow torch.chunk's rule. Equal cuts share one body in the process. Layouts store its
// number. Thread-safe.
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
  /// At least 1; 0 in a layout means torch.chunk's rule. Numbers differ between processes.
  using Number = std::uint32_t;
  static constexpr int kNumberBits = 20;
  using Sizes = std::vector<std::int64_t>;

  /// @throws Error kInvalidArgument: no size, a negative one, a sum that no dim has; kUnavailable:
  /// a million others are in use
  static base::Counted<Cut> of(Sizes sizes);
  /// Takes no lock. A cut without owners keeps its number until some thousand more have lost theirs
  /// (DT_CHECK).
  static const Cut& at(Number number);
  /// Adds an owner.
  static base::Counted<Cut> share(Number number);
  /// The number of cuts in the process, with or without owners.
  static std::size_t kept();

  const Sizes& sizes() const { return sizes_; }
  std::int64_t total() const { return total_; }
  std::int64_t largest() const { return largest_; }
  /// Whether torch.chunk would give the same sizes.
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
