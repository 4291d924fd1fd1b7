#include "large_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dtrun::collectives::cpu {

namespace {

#if defined(__SSE2__)
constexpr std::size_t kLine = 64;

/// @param to on a cache line @return how many bytes it has copied: whole lines
std::size_t stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t whole = bytes / kLine * kLine;
  for (std::size_t at = 0; at < whole; at += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    auto* const target = reinterpret_cast<__m128i*>(to + at);
    const __m128i words[] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1),
                             _mm_loadu_si128(source + 2), _mm_loadu_si128(source + 3)};
    _mm_stream_si128(target, words[0]);
    _mm_stream_si128(target + 1, words[1]);
    _mm_stream_si128(target + 2, words[2]);
    _mm_stream_si128(target + 3, words[3]);
  }
  // Such stores come in any order, also behind a later release store.
  _mm_sfence();
  return whole;
}
#endif

}  // namespace

void copy_around(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
#if defined(__SSE2__)
  const std::size_t lead =
      std::min<std::size_t>((0 - reinterpret_cast<std::uintptr_t>(to)) % kLine, bytes);
  std::memcpy(target, source, lead);
  const std::size_t done = lead + stream(target + lead, source + lead, bytes - lead);
  target += done;
  source += done;
  bytes -= done;
#endif
  std::memcpy(target, source, bytes);
}

void copy_large(void* to, const void* from, std::size_t bytes) {
  if (bytes >= kStreamedBytes) return copy_around(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace dtrun::collectives::cpu
