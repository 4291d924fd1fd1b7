// UniqueFd: the one owner of a file descriptor; the only place that calls close(2). Move-only.
#pragma once

#include <cstddef>
#include <utility>

namespace dtrun::base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }
  int release() { return std::exchange(fd_, -1); }
  /// Closes; errors of close are not retried (the number is gone either way).
  void reset();

 private:
  int fd_ = -1;
};

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};
/// Both ends close-on-exec. @throws Error kSystem
Pipe make_pipe();

/// The same under a number not below `lowest`, close-on-exec: where the low numbers are wanted for
/// what children inherit. @throws Error kSystem
UniqueFd moved_up(UniqueFd fd, int lowest);

/// Makes the kernel's table of this process's descriptors large enough for `count` at once. Call it
/// before the first thread starts: when a table that threads share grows, the growing thread waits
/// until all CPUs have scheduled (RCU), 5 to 20 ms for each doubling. Not beyond the limit of open
/// files.
void reserve_descriptors(std::size_t count);

}  // namespace dtrun::base
