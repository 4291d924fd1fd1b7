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

/// The two standard normal numbers of each pair of 64 random bits: normal_number.h's, as floats
/// those rounded. @param pairs up to 128
void normal_pairs(float* numbers, const std::uint64_t* bits, std::int64_t pairs);
void normal_pairs(double* numbers, const std::uint64_t* bits, std::int64_t pairs);

/// The standard normal numbers that stand there. @tparam T float or double
template <typename T>
void normal_numbers(T* numbers, RandomKey key, std::int64_t first, std::int64_t count);

/// Of 64 random bits each: formulas/random.h's. @tparam T float or double
template <typename T>
void uniform_numbers(T* numbers, const std::uint64_t* random, std::int64_t count, int bits, T unit);
template <typename T>
void mask_numbers(T* numbers, const std::uint64_t* random, std::int64_t count, std::int64_t dropped,
                  T kept);
/// Of as many numbers `in`, times such a mask.
template <typename T>
void drop_numbers(T* numbers, const T* in, const std::uint64_t* random, std::int64_t count,
                  std::int64_t dropped, T kept);

}  // namespace dtrun::tensors
