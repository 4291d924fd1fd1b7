// StreamCopy: a regular file that gets all bytes of a stream, and from which a reader that was too
// slow for the stream can read them again. After the first write that fails it takes nothing more:
// so it always holds the beginning of the stream, without a gap. Writes block as long as the file
// system does. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

class StreamCopy {
 public:
  /// @param file empty, opened for reading and appending; nobody else writes to it
  explicit StreamCopy(UniqueFd file) : file_(std::move(file)) {}

  /// Called once, at the first failure.
  void on_failure(std::function<void(int error_number)> callback) {
    on_failure_ = std::move(callback);
  }

  /// How many of the bytes are in the file now; fewer than all: it has failed.
  std::size_t append(std::string_view bytes);
  /// How many bytes were read; 0: `offset` is the end, or they cannot be read (then failed() is).
  std::size_t read(std::uint64_t offset, char* buffer, std::size_t size);

  std::uint64_t size() const { return size_; }
  bool failed() const { return error_number_ != 0; }
  /// errno of the first failure; 0: none.
  int error_number() const { return error_number_; }
  std::uint64_t lost_bytes() const { return lost_bytes_; }

 private:
  void fail(int error_number);

  UniqueFd file_;
  std::function<void(int)> on_failure_;
  std::uint64_t size_ = 0;
  std::uint64_t lost_bytes_ = 0;
  int error_number_ = 0;
};

}  // namespace dtrun::base
