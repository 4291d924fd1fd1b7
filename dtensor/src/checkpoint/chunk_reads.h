// Chunk reads: the parts of saved tensors that a rank reads, on as many threads as the calling
// thread's operations have where there is much to read; each thread in the order of the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/shard_file.h"
#include "dtrun/dtensor/checkpoint/file_calls.h"
#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/layout/box.h"

namespace dtrun::dtensor::dcp {

/// What a box has of a chunk.
struct ChunkRead {
  const SavedTensor* tensor;
  const SavedChunk* chunk;
  Box box;       ///< of the memory
  char* memory;  ///< of the box, row-major, in the dtype of the saved tensor
  /// Of the chunk's bytes: the others are not read.
  std::uint64_t begin = 0, end = ~std::uint64_t{0};
};

/// What a thread reads at a time: much more than a file's header, mostly.
inline constexpr std::uint64_t kTaskBytes = std::uint64_t{32} << 20;

/// Everything that is read is verified. With one thread each byte is read once; more threads may
/// read a block twice in which two of them meet.
/// @param task_bytes tests read little
/// @return the bytes that were read of chunks
/// @throws Error kProtocol naming file and place of damage; then memory may have damaged bytes;
/// kNotFound; kSystem
std::uint64_t read_chunks(FileCalls& files, const std::string& folder, const Manifest& manifest,
                          const std::vector<ChunkRead>& reads, PageCache cache,
                          std::uint64_t task_bytes = kTaskBytes);

}  // namespace dtrun::dtensor::dcp
