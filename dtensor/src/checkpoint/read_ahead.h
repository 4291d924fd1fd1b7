// ReadAhead: reads blocks of a checkpoint's files by threads of its own while another verifies and
// copies those before. It knows beforehand which blocks are wanted, and reads no others, and each
// once. Two reads are under way at once: a disk that ended one has the next already.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "checkpoint/block_walk.h"
#include "checkpoint/file_bytes.h"

namespace dtrun::dtensor::dcp {

/// Less is not worth the threads.
inline constexpr std::uint64_t kLeastReadAhead = std::uint64_t{4} << 20;

/// One thread's, which takes what the own ones read.
class ReadAhead {
 public:
  /// Lets a walk go on with what comes next. @return false: nothing does
  using Next = std::function<bool(BlockWalk&)>;

  /// @param walk what was read before @param next called by an own thread, one at a time
  ReadAhead(FileCalls& files, const std::string& folder, const Manifest& manifest, PageCache cache,
            BlockWalk walk, Next next);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// @param memory is exchanged for that of the bytes @return none: another part comes next, and
  /// the caller has to read this one @throws Error what its reading threw
  std::optional<std::string_view> take(const FilePart& part, DirectMemory& memory);

 private:
  struct Block {
    FilePart part;
    DirectMemory memory;
    std::string_view bytes;
    std::exception_ptr fault;  ///< of its reading
    bool is_read = false;
  };
  using OpenFiles = std::map<std::size_t, FileBytes>;  ///< by number

  void run();
  Block* claim();
  void read(Block& block, OpenFiles& open) const;
  void end(const std::exception_ptr& fault);

  /// Few, so that they stay in a cache: the disk's bytes come into it, and are verified and copied
  /// out of it. Of 512 MiB that took 0.21 to 0.26 s with 4 blocks and 0.26 to 0.30 with 8.
  static constexpr std::size_t kBlocks = 4;
  static constexpr std::size_t kMostOpenFiles = 16;

  FileCalls& files_;
  const std::string folder_;
  const Manifest& manifest_;
  const PageCache cache_;
  std::mutex claiming_;  ///< before mutex_
  BlockWalk walk_;
  const Next next_;
  std::array<Block, kBlocks> blocks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t claimed_ = 0, taken_ = 0;  ///< blocks; number n is in blocks_[n % kBlocks]
  bool is_over_ = false;                   ///< nothing is taken any more
  bool has_ended_ = false;                 ///< nothing is claimed any more
  std::exception_ptr fault_;               ///< of claiming, which has ended then
  std::array<std::thread, 2> threads_;
};

}  // namespace dtrun::dtensor::dcp
