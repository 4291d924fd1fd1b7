// RandomPart: along which dims the plain tensors of a forward are parts of larger ones, of which
// other ranks, or other microbatches, have the rest. dropout() asks for it, so that an element's
// random number depends on its place in what one rank alone would have.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/surroundings.h"

namespace dtrun::dtensor {

struct RandomPart : Surrounding {
  /// From the outermost to the innermost: a microbatch is a part of one rank's samples.
  enum class Level : unsigned char { samples, microbatch, positions };
  /// Elements that follow one another.
  struct Run {
    std::int64_t first, count;
    friend bool operator==(const Run&, const Run&) = default;
  };
  /// A dim as it would be on one rank, and where the elements here lie in it.
  struct Extent {
    std::int64_t size;
    std::vector<Run> runs;
  };

  RandomPart(Level its_level, std::vector<std::int64_t> its_chunks, std::int64_t its_count,
             std::int64_t its_whole, std::vector<int> its_ranks)
      : level(its_level),
        chunks(std::move(its_chunks)),
        count(its_count),
        whole(its_whole),
        ranks(std::move(its_ranks)) {}

  /// Dim 0 of samples and microbatches, dim 1 of positions.
  int dim() const { return level == Level::positions ? 1 : 0; }
  /// Where the extent of a tensor that lies within this part lies in the whole. A dim that is no
  /// multiple of the units has its last one cut: no two parts overlap then either.
  Extent around(const Extent& inner) const;

  /// Those that stand, outermost first. Where a group of ranks is named by several, such as a
  /// model's and a unit's, the first one counts. Ranks that have other positions of the same
  /// samples are one among those that have samples.
  static std::vector<RandomPart> standing();
  /// Whether one of this level and these ranks stands.
  bool stands() const;

  /// While it lives, the part stands.
  class Entered {
   public:
    explicit Entered(std::shared_ptr<const RandomPart> part) {
      surroundings::enter(std::move(part));
    }
    ~Entered() { surroundings::leave(); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
  };

  const Level level;
  const std::vector<std::int64_t> chunks;  ///< that are here, by their first unit
  const std::int64_t count;                ///< units in each
  const std::int64_t whole;                ///< units in all
  const std::vector<int> ranks;            ///< that have the chunks; of a microbatch none
};

}  // namespace dtrun::dtensor
