// copy_around(): memcpy that writes around the caches: a line that is written whole need not be
// read first, or taken from other cores, and what lies in the caches stays there. copy_large() does
// so with what no cache holds.
#pragma once

#include <cstddef>

namespace dtrun::collectives::cpu {

/// Of fewer bytes, whoever reads the copy finds it in a cache, and memcpy() is faster by far.
inline constexpr std::size_t kStreamedBytes = 8 << 20;

/// As memcpy(). What was copied is seen by whoever sees a later release store of this thread.
void copy_around(void* to, const void* from, std::size_t bytes);
/// The same from kStreamedBytes on.
void copy_large(void* to, const void* from, std::size_t bytes);

}  // namespace dtrun::collectives::cpu
