// A whole number as a double, in plain arithmetic: AVX2 converts no vectors of 64 bits, and one
// conversion leaves a whole loop scalar.
#pragma once

#include <bit>
#include <cstdint>

#include "host_device.h"

namespace dtrun::tensors {

/// Exact. @param number up to 2^53
DTRUN_BOTH inline double whole_double(std::uint64_t number) {
  // Both halves as the lowest bits of a double that begins with 2^84 and with 2^52.
  const double upper = std::bit_cast<double>(number >> 32 | 0x4530000000000000U);
  const double lower = std::bit_cast<double>((number & 0xffffffffU) | 0x4330000000000000U);
  return (upper - 0x1.00000001p84) + lower;
}

}  // namespace dtrun::tensors
