#include "checkpoint/shard_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <numeric>
#include <utility>

#include "checkpoint/block_sums.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/read_ahead.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
namespace json = boost::json;

ShardMetadata shard_metadata(std::uint64_t generation, const std::vector<ShardPiece>& pieces) {
  json::object torch, own;
  for (const ShardPiece& piece : pieces) {
    const tensors::Shape& offsets = piece.box.offsets;
    const json::array place(offsets.begin(), offsets.end());
    torch[piece.name] = {{"saved_offsets", place}};
    own[piece.name] = {{"offsets", place},
                       {"of", json::array(piece.shape.begin(), piece.shape.end())}};
  }
  // The first three are PyTorch's: torch/distributed/checkpoint/_hf_utils.py.
  return {{"format", "pt"},
          {"DCP_VERSION", "1.0"},
          {"DCP_SHARDING_INFO", json::serialize(torch)},
          {"dtrun_generation", fmt::format("{:016x}", generation)},
          {"dtrun_boxes", json::serialize(own)}};
}

std::uint64_t ShardPiece::bytes() const {
  return tensors::bytes_of_shape(box.shape, dtype);
}

// A block at a time, so that it is still in the cache when it is written.
std::function<void(const ByteSink&)> source_of(const tensors::LocalTensor& elements) {
  return [elements](const ByteSink& sink) {
    std::string_view bytes(static_cast<const char*>(elements.data()), elements.bytes());
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kBlockBytes)))
      sink(bytes.substr(0, kBlockBytes));
  };
}

std::string shard_name(int rank, int ranks) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", rank + 1, ranks);
}

WrittenShard write_shard(FileCalls& files, const std::string& folder, const std::string& name,
                         const ShardMetadata& metadata, const std::vector<ShardPiece>& pieces,
                         Checksums checksums) {
  // Wider elements first: all are aligned.
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return tensors::item_size(pieces[i].dtype); });
  tensors::SafetensorsHeader header{.entries = {}, .metadata = metadata};
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    const ShardPiece& piece = pieces[i];
    const std::uint64_t end = at + piece.bytes();
    header.entries.push_back({piece.name, piece.dtype, piece.box.shape, at, end});
    at = end;
  }
  const std::string beginning = tensors::safetensors_beginning(header);
  WrittenShard written;
  written.file = {name, beginning.size() + at, beginning.size(), checksum(beginning)};
  written.chunks.resize(pieces.size());
  OpenFile file = OpenFile::create(files, path_in(folder, name));
  BlockWriter writer(file, written.file.bytes);
  writer.write(beginning);
  BlockSums sums;
  const ByteSink sink = [&](std::string_view bytes) {
    if (checksums == Checksums::made) sums.add(bytes);
    writer.write(bytes);
  };
  at = beginning.size();
  for (const std::size_t i : order) {
    SavedChunk& chunk = written.chunks[i];
    chunk.box = pieces[i].box;
    chunk.begin = at;
    at += pieces[i].bytes();
    pieces[i].source(sink);
    chunk.checksums = sums.take();
  }
  writer.finish();
  file.sync();
  file.close();
  return written;
}

ShardReader::ShardReader(FileCalls& files, const std::string& folder, const SavedFile& saved,
                         FileHeader header, PageCache cache)
    : file_(files, path_in(folder, saved.name), cache) {
  if (file_.bytes() != saved.bytes)
    throw Error(ErrorCode::kProtocol,
                fmt::format("{} has {} bytes, not {}", file_.path(), file_.bytes(), saved.bytes),
                "it was cut or added to after it was saved");
  if (header == FileHeader::known) return;
  if (checksum(file_.at(0, saved.header_bytes, memory_)) != saved.header_checksum)
    throw Error(ErrorCode::kProtocol, "the header of " + file_.path() + " is damaged",
                "its checksum is another one than when it was saved");
}

std::string_view ShardReader::verified(const SavedTensor& tensor, const SavedChunk& chunk,
                                       std::uint64_t index, std::uint64_t count, ReadAhead* ahead,
                                       char* memory) {
  const std::uint64_t begin = chunk.begin + index * kBlockBytes;
  held_ = {};
  const std::optional<std::string_view> taken =
      ahead == nullptr ? std::nullopt : ahead->take({chunk.file, begin, count}, memory_);
  const std::string_view bytes = taken ? *taken : file_.at(begin, count, memory_, memory);
  bytes_read_ += count;
  // Files of others have none.
  if (!chunk.checksums.empty() && checksum(bytes) != chunk.checksums[index])
    throw Error(ErrorCode::kProtocol,
                fmt::format("\"{}\" is damaged: bytes {} to {} of {}", tensor.name, begin,
                            begin + count, file_.path()),
                "their checksum is another one than when they were saved",
                "an older checkpoint; the disk may be failing");
  if (bytes.data() != memory) {
    held_ = bytes;
    held_at_ = begin;
  }
  return bytes;
}

std::string_view ShardReader::block(const SavedTensor& tensor, const SavedChunk& chunk,
                                    std::uint64_t index, ReadAhead* ahead) {
  const std::uint64_t all = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
  if (holds(chunk, index)) return held_;
  return verified(tensor, chunk, index, std::min(kBlockBytes, all - index * kBlockBytes), ahead);
}

void ShardReader::read(const SavedTensor& tensor, const SavedChunk& chunk, ByteRuns runs,
                       char* target, ReadAhead* ahead) {
  const std::uint64_t all = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
  while (std::optional<ByteRun> run = runs.next()) {
    while (run->bytes > 0) {
      const std::uint64_t index = run->from / kBlockBytes;
      const std::uint64_t size = std::min(kBlockBytes, all - index * kBlockBytes);
      if (run->from % kBlockBytes == 0 && run->bytes >= size) {  // the whole block goes there
        char* const to = target + run->to;
        const std::string_view whole =
            holds(chunk, index) ? held_ : verified(tensor, chunk, index, size, ahead, to);
        if (whole.data() != to) std::memcpy(to, whole.data(), size);
        *run = {run->from + size, run->to + size, run->bytes - size};
        continue;
      }
      const std::string_view bytes = block(tensor, chunk, index, ahead);
      const std::uint64_t within = run->from - index * kBlockBytes;
      const std::uint64_t count = std::min(run->bytes, bytes.size() - within);
      std::memcpy(target + run->to, bytes.data() + within, count);
      *run = {run->from + count, run->to + count, run->bytes - count};
    }
  }
}

}  // namespace dtrun::dtensor::dcp
