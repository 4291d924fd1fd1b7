// copy_large(): memcpy of what no cache holds. From kStreamedBytes on it writes around the caches:
// a line that is written whole need not be read first, and what lies in the caches stays there.
#pragma once

#include <cstddef>

namespace dtrun::collectives::cpu {

/// Of fewer bytes, whoever reads the copy finds it in a cache, and memcpy() is faster by far.
inline constexpr std::size_t kStreamedBytes = 8 << 20;

/// As memcpy(). What was copied is seen by whoever sees a later release store of this thread.
void copy_large(void* to, const void* from, std::size_t bytes);

}  // namespace dtrun::collectives::cpu
