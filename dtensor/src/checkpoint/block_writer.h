// BlockWriter: writes a file from its beginning to its end, in blocks. A large file is written by a
// thread of its own, past the page cache (O_DIRECT) where the file system can do that: the caller
// fills the next blocks while the disk takes one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "checkpoint/direct_memory.h"
#include "checkpoint/open_file.h"

namespace dtrun::dtensor::dcp {

/// What is written at a time: a huge page.
inline constexpr std::size_t kWriteBytes = std::size_t{2} << 20;

/// One thread's.
class BlockWriter {
 public:
  /// @param file new, and for the writer alone until finish() has returned
  static constexpr std::size_t kMostBlocks = 6;

  /// @param bytes of the whole file @param blocks of memory that it takes, at least 2
  BlockWriter(OpenFile& file, std::uint64_t bytes, std::size_t blocks = kMostBlocks);
  /// What was not finished is left as it is.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  /// Takes a copy. @throws Error kSystem, perhaps of bytes that were given before
  void write(std::string_view bytes);
  /// Everything is written, not synced. @throws Error kSystem
  void finish();

 private:
  struct Block {
    DirectMemory memory;
    std::size_t size = 0;
  };

  Block& next_block();
  void hand_over();
  void put(const Block& block);
  void run();
  void stop();

  OpenFile& file_;
  bool is_direct_ = false;
  std::vector<Block> blocks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t filled_ = 0, written_ = 0;  ///< blocks; number n is in blocks_[n % blocks_.size()]
  bool is_over_ = false;                    ///< nothing is filled any more
  std::exception_ptr fault_;                ///< of the thread, which has ended then
  std::thread thread_;                      ///< none for a small file
};

}  // namespace dtrun::dtensor::dcp
