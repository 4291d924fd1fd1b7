// What an event of a World's watcher thread is about: a kind and a number (world rank, or fd).
#pragma once

#include <cstdint>

namespace dtrun::collectives::cpu {

enum class Source : std::uint32_t { wake, door, listener, pending, control, lifeline, data };

inline std::uint64_t tag(Source source, int number) {
  return (static_cast<std::uint64_t>(source) << 32) | static_cast<std::uint32_t>(number);
}

}  // namespace dtrun::collectives::cpu
