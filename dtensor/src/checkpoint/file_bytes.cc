#include "checkpoint/file_bytes.h"

namespace dtrun::dtensor::dcp {

FileBytes::FileBytes(FileCalls& files, const std::string& path, PageCache cache)
    : file_(OpenFile::open(files, path)), bytes_(file_.bytes()), cache_(cache) {}

// The page cache has what was read ahead of a header or of small pieces; one place farther on tells
// whether it has the file.
bool FileBytes::is_cached() {
  if (!is_cached_) is_cached_ = file_.is_cached(bytes_ / 4 * 3);
  return *is_cached_;
}

std::string_view FileBytes::at(std::uint64_t begin, std::uint64_t count, DirectMemory& memory,
                               char* place) {
  constexpr std::uint64_t kLeast = std::uint64_t{256} << 10;
  const bool is_direct = cache_ == PageCache::passed_by && count >= kLeast && !is_cached();
  if (file_.set_direct(is_direct) && is_direct) return file_.read_direct_at(begin, count, memory);
  if (place == nullptr) place = memory.resize(count);
  file_.read_at(begin, place, count);
  return {place, count};
}

}  // namespace dtrun::dtensor::dcp
