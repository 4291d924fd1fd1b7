#include "dtrun/base/stream_copy.h"

#include <unistd.h>

#include <cerrno>

namespace dtrun::base {

std::size_t StreamCopy::append(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size() && !failed()) {
    const ssize_t n = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      fail(errno);
    }
  }
  size_ += done;
  lost_bytes_ += bytes.size() - done;
  return done;
}

std::size_t StreamCopy::read(std::uint64_t offset, char* buffer, std::size_t size) {
  while (offset < size_) {
    const ssize_t n = ::pread(file_.get(), buffer, size, static_cast<off_t>(offset));
    if (n > 0) return static_cast<std::size_t>(n);
    if (n < 0 && errno == EINTR) continue;
    // Truncated by somebody, or unreadable: what is not there cannot be shown.
    fail(n < 0 ? errno : EIO);
    break;
  }
  return 0;
}

void StreamCopy::fail(int error_number) {
  if (failed()) return;
  error_number_ = error_number;
  if (on_failure_) on_failure_(error_number);
}

}  // namespace dtrun::base
