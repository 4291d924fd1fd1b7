// NoticeWriter: writes to a descriptor on a thread of its own, so that a caller is not held up by a
// reader that has stopped or by a file system that hangs. Thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "dtrun/base/deadline.h"

namespace dtrun::launcher {

class NoticeWriter {
 public:
  /// Borrows the descriptor for as long as anything is to be written. @throws Error kSystem
  explicit NoticeWriter(int fd);
  ~NoticeWriter();
  NoticeWriter(const NoticeWriter&) = delete;
  NoticeWriter& operator=(const NoticeWriter&) = delete;

  /// Waits a moment for the text to be written. Of text that must wait longer, the first megabyte
  /// is kept.
  void put(std::string_view text);
  /// False: not all is written by then.
  bool flush(base::Deadline deadline);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// On this thread. What cannot be written is dropped.
void write_all(int fd, std::string_view text);

}  // namespace dtrun::launcher
