// BlockWalk: which blocks of a checkpoint's files are read for parts of chunks, in order: pure. Its
// rule is ShardReader::read()'s, which holds the last block that it read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/checkpoint/plan.h"

namespace dtrun::dtensor::dcp {

/// A part of one of a checkpoint's files.
struct FilePart {
  std::size_t file = 0;  ///< its number in the manifest
  std::uint64_t begin = 0, bytes = 0;
  friend bool operator==(const FilePart&, const FilePart&) = default;
};

class BlockWalk {
 public:
  /// @param files of the manifest
  explicit BlockWalk(std::size_t files) : held_(files) {}

  /// The block that begins there was read before.
  void hold(std::size_t file, std::uint64_t begin) { held_[file] = begin; }
  /// What is read next: some of a chunk.
  void go_on(const SavedTensor& tensor, const SavedChunk& chunk, ByteRuns runs);
  /// @return none: all of it was read
  std::optional<FilePart> next();

 private:
  std::vector<std::optional<std::uint64_t>> held_;  ///< by file, where the block begins
  const SavedChunk* chunk_ = nullptr;
  std::uint64_t bytes_ = 0;  ///< of the chunk
  std::optional<ByteRuns> runs_;
  ByteRun run_;
};

}  // namespace dtrun::dtensor::dcp
