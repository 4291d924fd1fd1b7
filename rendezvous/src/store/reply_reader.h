// ReplyReader: takes the bytes of a store's replies apart. An answer that a store may not give is
// an error. Memory grows with the bytes that have come, never with the announced length. The owner
// brings the bytes, from a socket or from a fuzzer. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"

namespace dtrun::rendezvous {

class ReplyReader {
 public:
  /// Waits for bytes and gives at least one of them. @throws what ends the reading
  using Source = std::function<std::size_t(char* data, std::size_t size, base::Deadline deadline)>;

  /// @param store host:port, for errors
  ReplyReader(Source source, std::string store);

  // Each @throws Error kProtocol for what no store answers, and what the source throws.
  std::uint32_t read_u32(base::Deadline deadline);
  /// One of 0 and 1: of CHECK, WAIT, CANCEL_WAIT.
  std::uint8_t read_flag(base::Deadline deadline);
  std::int64_t read_i64(base::Deadline deadline);
  /// Not negative: how many there are of something.
  std::int64_t read_count(base::Deadline deadline);
  std::string read_text(base::Deadline deadline);
  /// As many texts as a count before them says.
  std::vector<std::string> read_list(base::Deadline deadline);

  /// Bytes that have come and were not asked for.
  std::size_t unread() const { return end_ - begin_; }

 private:
  void read(char* data, std::size_t size, base::Deadline deadline);

  Source source_;
  std::string store_;
  char buffer_[4096];
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace dtrun::rendezvous
