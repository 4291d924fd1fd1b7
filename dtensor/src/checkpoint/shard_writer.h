// ShardWriter: one shard of a checkpoint while it is written: the header first, then the pieces'
// bytes in their order. Several may be written side by side.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/block_sums.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/open_file.h"
#include "checkpoint/shard_file.h"

namespace dtrun::dtensor::dcp {

/// One thread's.
class ShardWriter {
 public:
  /// @param blocks that wait for the disk at most @throws Error kSystem, as all but order()
  ShardWriter(FileCalls& files, const std::string& folder, const std::string& name,
              const ShardMetadata& metadata, const std::vector<ShardPiece>& pieces,
              Checksums checksums = Checksums::made, std::size_t blocks = BlockWriter::kMostBlocks);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// The pieces' numbers, as their bytes come: those of wider elements first, so that all are
  /// aligned, then in the order in which they were given.
  const std::vector<std::size_t>& order() const { return order_; }
  void write(std::string_view bytes);
  /// All of the next piece was written.
  void end_piece();
  /// The file is on the disk, its name in the folder perhaps not yet.
  WrittenShard finish();

 private:
  const Checksums checksums_;
  std::vector<std::size_t> order_;
  std::size_t ended_ = 0;  ///< pieces
  WrittenShard written_;
  OpenFile file_;
  std::unique_ptr<BlockWriter> writer_;
  BlockSums sums_;
};

}  // namespace dtrun::dtensor::dcp
