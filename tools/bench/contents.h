// Contents: what the ranks write into their buffers, and what must come out of a call. Every rank
// has a pattern of its own whose reduction is exact in the dtype, so a result is right to the last
// bit or wrong. Each call begins elsewhere in the patterns: what an earlier call left behind is
// wrong. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/operation.h"

namespace dtrun::bench {

/// @throws base::Error kUsage where no patterns of so many ranks have an exact reduction
void require_exact(const Call& call, int ranks);

class Contents {
 public:
  Contents(const Call& call, int rank, int ranks);

  /// Writes the input of the call of that number. Where the operation works in place and this rank
  /// gives nothing, and over an output apart, that is rubbish.
  void write(std::uint64_t number, std::byte* input, std::byte* output) const;
  /// Elements of the output that are not what they must be. What MPI leaves open, the buffers of
  /// those who get nothing, is not looked at.
  std::size_t count_wrong(std::uint64_t number, const std::byte* output) const;

 private:
  using Pattern = std::vector<std::byte>;
  /// A run of elements in a buffer, taken from a pattern.
  struct Part {
    const Pattern* pattern;
    std::size_t first;  ///< element of the pattern
    std::size_t place;  ///< element of the buffer
    std::size_t count;
  };
  template <typename Visit>
  void for_each_run(const Part& part, std::uint64_t number, Visit visit) const;
  void plan(const Call& call, int rank, int ranks);

  std::size_t item_size_;
  std::size_t output_bytes_;
  std::vector<Pattern> patterns_;  ///< of each rank
  Pattern reduced_;
  std::vector<Part> given_;
  std::vector<Part> expected_;
};

}  // namespace dtrun::bench
