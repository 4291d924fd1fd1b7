// Normal numbers that are nearly normal_number.h's, in half its time: enough to know a float of
// nearly all of them.
#pragma once

#include <bit>
#include <cstdint>

namespace dtrun::tensors {

/// Pairs at once.
constexpr std::int64_t kMostNearPairs = 128;

/// Writes 2 * pairs numbers: the two of 64 random bits each, as normal_pair_of_bits() makes them,
/// but within 2^-42 of their size. What is 0 there is the same 0 here.
/// @param pairs up to kMostNearPairs
void near_normal_numbers(double* target, const std::uint64_t* bits, std::int64_t pairs);

/// Whether a double within 2^-41 of the size of `near` may round to another float than it. One of
/// 2^16 may.
/// @param near 0, or of a size that a normal float has
inline bool rounds_doubtfully(double near) {
  // A double has 29 bits more than a float, and 2^-41 of its size is less than 2^12 of its steps.
  constexpr std::uint64_t kDropped = (std::uint64_t{1} << 29) - 1;
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 28;
  constexpr std::uint64_t kReach = std::uint64_t{1} << 12;
  return ((std::bit_cast<std::uint64_t>(near) + kReach - kHalf) & kDropped) <= 2 * kReach;
}

}  // namespace dtrun::tensors
