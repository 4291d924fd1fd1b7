// CountingDisk: a DiskModel that counts how often each byte of a file was read.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "dtensor/checkpoint/disk_model.h"

namespace dtrun::dtensor::dcp {

class CountingDisk : public DiskModel {
 public:
  int open(const std::string& path) override {
    const int fd = DiskModel::open(path);
    const std::lock_guard guard(mutex_);
    paths_[fd] = path;
    return fd;
  }
  ssize_t read_at(int fd, void* bytes, std::size_t count, std::uint64_t offset) override {
    const ssize_t taken = DiskModel::read_at(fd, bytes, count, offset);
    const std::lock_guard guard(mutex_);
    if (taken > 0) bytes_read_[paths_[fd]] += static_cast<std::uint64_t>(taken);
    std::map<std::uint64_t, int>& more = more_[paths_[fd]];
    ++more[offset];
    --more[offset + static_cast<std::uint64_t>(std::max<ssize_t>(0, taken))];
    return taken;
  }
  void forget() {
    const std::lock_guard guard(mutex_);
    more_.clear();
    bytes_read_.clear();
  }
  /// Of a file, however often.
  std::uint64_t bytes_read(const std::string& path) const { return bytes_read_.at(path); }
  /// Whether each byte from one place to another was read once.
  bool is_read_once(const std::string& path, std::uint64_t begin, std::uint64_t end) const {
    int times = 0;
    std::uint64_t at = 0;
    for (const auto& [place, more] : more_.at(path)) {
      if (times != 1 && std::max(at, begin) < std::min(place, end)) return false;
      times += more;
      at = place;
    }
    return at >= end;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> paths_;
  std::map<std::string, std::uint64_t> bytes_read_;
  /// By file: how many more times the bytes from a place on were read than those before it.
  std::map<std::string, std::map<std::uint64_t, int>> more_;
};

}  // namespace dtrun::dtensor::dcp
