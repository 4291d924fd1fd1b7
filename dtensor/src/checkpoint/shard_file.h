// Shard files: the .safetensors files of a checkpoint, one per rank that writes. Their tensors'
// names are plain; their metadata has each box's place in its tensor, also as PyTorch's
// torch.distributed.checkpoint reads it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_bytes.h"
#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/checkpoint/plan.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor::dcp {

class ReadAhead;

/// Takes bytes that follow each other.
using ByteSink = std::function<void(std::string_view bytes)>;

/// A box that is written.
struct ShardPiece {
  std::string name;
  tensors::Shape shape;  ///< of the whole tensor
  Box box;
  tensors::DType dtype;
  std::function<void(const ByteSink&)> source;  ///< gives the elements of the box, row-major

  std::uint64_t bytes() const;
};
/// @param elements contiguous, on the CPU
std::function<void(const ByteSink&)> source_of(const tensors::LocalTensor& elements);

/// "shard-00001-of-00004.safetensors".
std::string shard_name(int rank, int ranks);

struct WrittenShard {
  SavedFile file;
  std::vector<SavedChunk> chunks;  ///< one per piece, in their order; `file` is not set
};

using ShardMetadata = std::map<std::string, std::string>;
/// Where the pieces lie, and of which save they are.
ShardMetadata shard_metadata(std::uint64_t generation, const std::vector<ShardPiece>& pieces);

/// Whether a file's blocks get checksums, which a manifest has.
enum class Checksums : std::uint8_t { made, none };

/// The file is on the disk, its name in the folder perhaps not yet. @throws Error kSystem
WrittenShard write_shard(FileCalls& files, const std::string& folder, const std::string& name,
                         const ShardMetadata& metadata, const std::vector<ShardPiece>& pieces,
                         Checksums checksums = Checksums::made);

/// Whether a reader has to compare a file's header with its checksum.
enum class FileHeader : std::uint8_t { verified, known };

/// Reads what a manifest says is there. Everything is verified before it is given. One thread's.
class ShardReader {
 public:
  /// @throws Error kNotFound; kProtocol for a file of another size, or header
  ShardReader(FileCalls& files, const std::string& folder, const SavedFile& file,
              FileHeader header = FileHeader::verified, PageCache cache = PageCache::used);
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  /// Copies the runs out of a chunk. @param target where the runs' `to` counts from; after an Error
  /// it may have damaged bytes @param ahead of this folder, or null
  /// @throws Error kProtocol naming file and place where a checksum differs
  void read(const SavedTensor& tensor, const SavedChunk& chunk, ByteRuns runs, char* target,
            ReadAhead* ahead = nullptr);
  /// The first bytes of a run, those of one block, verified. Valid until the next call.
  std::string_view beginning_of(const SavedTensor& tensor, const SavedChunk& chunk,
                                const ByteRun& run, ReadAhead* ahead = nullptr);
  /// The block number `index` of a chunk, verified. Valid until the next call.
  std::string_view block(const SavedTensor& tensor, const SavedChunk& chunk, std::uint64_t index,
                         ReadAhead* ahead = nullptr);
  /// Then nothing has to be read ahead.
  bool is_cached() { return file_.is_cached(); }
  /// Where the block begins that read() and block() need not read again.
  std::optional<std::uint64_t> held() const {
    return held_.empty() ? std::nullopt : std::optional(held_at_);
  }
  /// Bytes that were read of chunks.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  /// Some of a chunk's bytes, unverified. They lie in `memory`, or in the reader's own.
  std::string_view taken(const SavedChunk& chunk, std::uint64_t from, std::uint64_t count,
                         ReadAhead* ahead, char* memory = nullptr);
  void read_unverified(const SavedChunk& chunk, ByteRuns runs, char* target, ReadAhead* ahead);
  /// A block. It lies in `memory`, or in the reader's own.
  std::string_view verified(const SavedTensor& tensor, const SavedChunk& chunk, std::uint64_t index,
                            std::uint64_t count, ReadAhead* ahead, char* memory = nullptr);

  bool holds(const SavedChunk& chunk, std::uint64_t index) const {
    return !held_.empty() && held_at_ == chunk.begin + index * kBlockBytes;
  }

  FileBytes file_;
  DirectMemory memory_;
  std::string_view held_;  ///< the block that was read last, in `memory_`
  std::uint64_t held_at_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace dtrun::dtensor::dcp
