// SharedCopy: memcpy() into memory that other ranks read next, through the caches or around them,
// as CopyPace says. Not thread-safe.
#pragma once

#include <cstddef>

#include "copy_pace.h"

namespace dtrun::collectives::cpu {

class SharedCopy {
 public:
  /// Whether so many bytes are worth a question.
  static constexpr bool is_for(std::size_t bytes) { return bytes >= CopyPace::kLeastBytes; }
  /// What was copied is seen by whoever sees a later release store of this thread.
  void copy(void* to, const void* from, std::size_t bytes);

 private:
  void copy_piece(std::byte* to, const std::byte* from, std::size_t bytes);
  void copy_timed(std::byte* to, const std::byte* from, std::size_t bytes);

  CopyPace pace_;
};

}  // namespace dtrun::collectives::cpu
