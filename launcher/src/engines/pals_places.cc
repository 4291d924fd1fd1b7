#include "engines/pals_places.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstring>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

// Where the header has what; its versions 1 to 5 differ in what comes after. A table has its
// entries' size there, then its place, then their number.
constexpr std::size_t kVersionAt = 0, kTotalSizeAt = 8, kTasksAt = 64, kNodesAt = 88,
                      kHeaderBytes = 112;
// The entry of a task: its number on the node, its command, its node.
constexpr std::size_t kNodeOfTaskAt = 8, kTaskBytes = 12;
constexpr std::size_t kHostAt = 4, kHostBytes = 64, kNodeBytes = kHostAt + kHostBytes;

Error file_error(const std::string& why) {
  return Error(ErrorCode::kUsage, "PALS' list of tasks cannot be read", why);
}

// Reads any bytes. The caller has checked that they lie within the file.
template <typename T>
T value_at(std::string_view file, std::size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

class Table {
 public:
  Table(std::string_view file, std::size_t header_at, std::size_t least_entry)
      : file_(file),
        entry_bytes_(value_at<std::uint64_t>(file, header_at)),
        begin_(value_at<std::uint64_t>(file, header_at + 8)),
        count_(value_at<std::int32_t>(file, header_at + 16)) {
    const bool sane = count_ > 0 && entry_bytes_ >= least_entry && entry_bytes_ <= file.size() &&
                      begin_ >= kHeaderBytes && begin_ <= file.size();
    if (!sane || static_cast<std::uint64_t>(count_) > (file.size() - begin_) / entry_bytes_)
      throw file_error(
          fmt::format("a table of {} entries of {} bytes at {} is not within its {} "
                      "bytes",
                      count_, entry_bytes_, begin_, file.size()));
  }

  int count() const { return count_; }
  std::string_view entry(int index) const {
    if (index < 0 || index >= count_)
      throw file_error(fmt::format("it has {} entries, and number {} is asked for", count_, index));
    return file_.substr(begin_ + static_cast<std::size_t>(index) * entry_bytes_, entry_bytes_);
  }

 private:
  std::string_view file_;
  std::uint64_t entry_bytes_, begin_;
  std::int32_t count_;
};

}  // namespace

PalsPlaces read_pals_places(std::string_view file, int task) {
  if (file.size() < kHeaderBytes)
    throw file_error(fmt::format("it has {} bytes, less than its header", file.size()));
  if (value_at<std::int32_t>(file, kVersionAt) < 1 ||
      value_at<std::uint64_t>(file, kTotalSizeAt) != file.size())
    throw file_error(
        fmt::format("it does not begin with a version and its size, {} bytes", file.size()));
  const Table tasks(file, kTasksAt, kTaskBytes), nodes(file, kNodesAt, kNodeBytes);
  const auto node_of = [&](int which) {
    return value_at<std::int32_t>(tasks.entry(which), kNodeOfTaskAt);
  };
  const std::string_view host = nodes.entry(node_of(0)).substr(kHostAt, kHostBytes);
  PalsPlaces places;
  places.head_host = host.substr(0, host.find('\0'));
  if (places.head_host.empty()) throw file_error("the node of task 0 has no name");
  places.nodes = nodes.count();
  places.node = node_of(task);
  (void)nodes.entry(places.node);
  return places;
}

}  // namespace dtrun::launcher
