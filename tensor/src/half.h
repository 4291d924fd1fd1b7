// Float16 and BFloat16 as values: the bits, and exact conversions from and to float. Rounding is to
// the nearest, ties to even. Branch-free, so that loops over them become SIMD.
#pragma once

#include <bit>
#include <cstdint>

#include "host_device.h"

namespace dtrun::tensors {

struct Float16 {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

DTRUN_BOTH inline float to_float(Float16 half) {
  const std::uint32_t sign = (half.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (half.bits & 0x7fffu) << 13;
  // Read as a float, the magnitude is 2^112 too small, subnormals included.
  const std::uint32_t finite =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const std::uint32_t special = magnitude | 0x7f800000u;
  return std::bit_cast<float>(sign | (magnitude >= 0x0f800000u ? special : finite));
}

DTRUN_BOTH inline Float16 to_float16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // 2^16 and above is infinity; clamping first keeps the rounding below from running over.
  const std::uint32_t clamped = magnitude < 0x47800000u ? magnitude : 0x47800000u;
  const std::uint32_t rebiased = clamped - (112u << 23);
  const std::uint32_t normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  // The ulp of 0.5 is the smallest half: the adder does the rounding.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(clamped) + 0.5f) - 0x3f000000u;
  const std::uint32_t finite = clamped < 0x38800000u ? subnormal : normal;
  const std::uint32_t result = magnitude > 0x7f800000u ? 0x7e00u : finite;
  return Float16{static_cast<std::uint16_t>(sign | result)};
}

DTRUN_BOTH inline float to_float(BFloat16 half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half.bits) << 16);
}

DTRUN_BOTH inline BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return BFloat16{static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded)};
}

}  // namespace dtrun::tensors
