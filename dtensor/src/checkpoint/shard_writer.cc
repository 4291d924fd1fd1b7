#include "checkpoint/shard_writer.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

ShardWriter::ShardWriter(FileCalls& files, const std::string& folder, const std::string& name,
                         const ShardMetadata& metadata, const std::vector<ShardPiece>& pieces,
                         Checksums checksums, std::size_t blocks)
    : checksums_(checksums),
      order_(pieces.size()),
      file_(OpenFile::create(files, path_in(folder, name))) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(order_, std::greater(),
                           [&](std::size_t i) { return tensors::item_size(pieces[i].dtype); });
  tensors::SafetensorsHeader header{.entries = {}, .metadata = metadata};
  std::uint64_t at = 0;
  for (const std::size_t i : order_) {
    const ShardPiece& piece = pieces[i];
    const std::uint64_t end = at + piece.bytes();
    header.entries.push_back({piece.name, piece.dtype, piece.box.shape, at, end});
    at = end;
  }
  const std::string beginning = tensors::safetensors_beginning(header);
  written_.file = {name, beginning.size() + at, beginning.size(), checksum(beginning)};
  written_.chunks.resize(pieces.size());
  at = beginning.size();
  for (const std::size_t i : order_) {
    written_.chunks[i].box = pieces[i].box;
    written_.chunks[i].begin = at;
    at += pieces[i].bytes();
  }
  writer_ = std::make_unique<BlockWriter>(file_, written_.file.bytes, blocks);
  writer_->write(beginning);
}

void ShardWriter::write(std::string_view bytes) {
  if (checksums_ == Checksums::made) sums_.add(bytes);
  writer_->write(bytes);
}

void ShardWriter::end_piece() {
  written_.chunks[order_[ended_++]].checksums = sums_.take();
}

WrittenShard ShardWriter::finish() {
  writer_->finish();
  file_.sync();
  file_.close();
  return std::move(written_);
}

}  // namespace dtrun::dtensor::dcp
