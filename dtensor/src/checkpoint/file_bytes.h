// FileBytes: parts of a checkpoint's file, as they are read: large ones past the page cache where
// that is wanted and it has not the file already. One thread's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/direct_memory.h"
#include "checkpoint/open_file.h"

namespace dtrun::dtensor::dcp {

/// Whether reads go through the page cache. What it has is taken from there in either case.
enum class PageCache : std::uint8_t {
  used,       ///< other processes read the same bytes, or small pieces are read
  passed_by,  ///< large blocks take less of the processor, and drive nothing out of the cache
};

class FileBytes {
 public:
  /// @throws Error as OpenFile::open()
  FileBytes(FileCalls& files, const std::string& path, PageCache cache);

  /// @param place where they may go instead, or null @return the bytes, in `memory` or at `place`
  /// @throws Error kProtocol where the file ends before; kSystem
  std::string_view at(std::uint64_t begin, std::uint64_t count, DirectMemory& memory,
                      char* place = nullptr);
  /// Whether the page cache has the file, when it is first asked: by one place in it.
  bool is_cached();
  std::uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return file_.path(); }

 private:
  OpenFile file_;
  std::uint64_t bytes_;
  const PageCache cache_;
  std::optional<bool> is_cached_;
};

}  // namespace dtrun::dtensor::dcp
