// The records that flood_worker writes and output_test checks, made by one rule on both sides. A
// record is one line: \x01, rank, sequence and length in fixed-width hex, `length` bytes of any
// value but newline, a newline. The length tells a reader whether the line was interrupted.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace dtrun::launcher {

inline constexpr std::size_t kRecordHeaderBytes = 1 + 2 + 8 + 8;

inline std::string record(int rank, std::uint32_t sequence, std::size_t length) {
  char header[32];
  std::snprintf(header, sizeof header, "\x01%02x%08x%08zx", static_cast<unsigned>(rank), sequence,
                length);
  std::string result = header;
  result.reserve(result.size() + length + 1);
  std::uint32_t state = sequence * 2654435761u + static_cast<std::uint32_t>(rank) + 1;
  for (std::size_t i = 0; i < length; ++i) {
    state = state * 1664525u + 1013904223u;
    const char byte = static_cast<char>(state >> 24);
    result += byte == '\n' ? '\r' : byte;
  }
  result += '\n';
  return result;
}

/// Lengths from nothing to some pages, and now and then many.
inline std::size_t record_length(int rank, std::uint32_t sequence) {
  const std::uint32_t mixed = (sequence + 1) * 2246822519u + static_cast<std::uint32_t>(rank) * 97u;
  if (sequence % 64 == 63) return 100'000 + mixed % 100'000;
  return (mixed >> 8) % 6000;
}

}  // namespace dtrun::launcher
