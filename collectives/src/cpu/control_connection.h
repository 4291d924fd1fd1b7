// ControlConnection: the connection that each two ranks of a world keep for their whole life, Unix
// or TCP: small frames about groups, and its end, which tells the peer's. Sending is thread-safe
// and never blocks; receiving is the watcher's alone.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "dtrun/base/unique_fd.h"

namespace dtrun::collectives::cpu {

enum class FrameKind : std::uint32_t {
  poison,    ///< the group has failed: a GroupFailure
  announce,  ///< the sender has waited for long: the Fingerprint of its collective
  status,    ///< answers announce: a BoardLine, its times as ages
  left,      ///< the sender has left the group: a LeftRecord
  goodbye,   ///< the sender leaves the world; the end of the connection is no failure
};

struct Frame {
  FrameKind kind = FrameKind::goodbye;
  std::uint64_t group = 0;  ///< group id; 0: none
  std::string payload;
};

class ControlConnection {
 public:
  /// @param fd non-blocking
  explicit ControlConnection(base::UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  /// What the socket does not take now goes out with the next flush().
  void send(const Frame& frame);
  void flush();
  /// Everything that has come. `open` turns false at the peer's end.
  std::vector<Frame> receive();
  bool open() const { return open_; }

 private:
  void flush_locked();

  base::UniqueFd fd_;
  std::mutex mutex_;
  std::string outgoing_;
  std::string incoming_;
  bool open_ = true;
};

}  // namespace dtrun::collectives::cpu
