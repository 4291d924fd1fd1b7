// Many random bits at once: Philox 4x32-10 in lanes, the same words as philox.h's.
#pragma once

#include <cstdint>

#include "dtrun/tensor/tensor_options.h"

namespace dtrun::tensors {

/// What random_bits() wants room for besides `count`.
constexpr std::int64_t kRandomRoom = 2;

/// 64 bits for each of the elements [first, first + count) of the endless sequence; two elements
/// share a Philox call, as a pair of normal numbers does.
/// @param room for count + kRandomRoom numbers @return where in it the first one stands
const std::uint64_t* random_bits(std::uint64_t* room, RandomKey key, std::int64_t first,
                                 std::int64_t count);

}  // namespace dtrun::tensors
