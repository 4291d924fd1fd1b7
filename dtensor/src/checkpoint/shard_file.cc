#include "checkpoint/shard_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <utility>

#include "checkpoint/read_ahead.h"
#include "checkpoint/shard_writer.h"
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
  ShardWriter writer(files, folder, name, metadata, pieces, checksums);
  const ByteSink sink = [&](std::string_view bytes) { writer.write(bytes); };
  for (const std::size_t i : writer.order()) {
    pieces[i].source(sink);
    writer.end_piece();
  }
  return writer.finish();
}

ShardReader::ShardReader(FileCalls& files, const std::string& folder, const SavedFile& saved,
                         FileHeader header, PageCache cache)
    : file_(files, path_in(folder, saved.name), cache) {
  if (file_.bytes() != saved.bytes)
    throw Error(ErrorCode::kProtocol,
                fmt::format("{} has {} bytes, not {}", file_.path(), file_.bytes(), saved.bytes),
                "it was cut or added to after it was saved",
                "copy it again, or load an older checkpoint");
  if (header == FileHeader::known) return;
  if (checksum(file_.at(0, saved.header_bytes, memory_)) != saved.header_checksum)
    throw Error(ErrorCode::kProtocol, "the header of " + file_.path() + " is damaged",
                "its checksum is another one than when it was saved",
                "copy it again, or load an older checkpoint");
}

std::string_view ShardReader::taken(const SavedChunk& chunk, std::uint64_t from,
                                    std::uint64_t count, ReadAhead* ahead, char* memory) {
  const std::uint64_t begin = chunk.begin + from;
  held_ = {};
  bytes_read_ += count;
  const std::optional<std::string_view> bytes =
      ahead == nullptr ? std::nullopt : ahead->take({chunk.file, begin, count}, memory_);
  return bytes ? *bytes : file_.at(begin, count, memory_, memory);
}

std::string_view ShardReader::verified(const SavedTensor& tensor, const SavedChunk& chunk,
                                       std::uint64_t index, std::uint64_t count, ReadAhead* ahead,
                                       char* memory) {
  const std::uint64_t begin = chunk.begin + index * kBlockBytes;
  const std::string_view bytes = taken(chunk, index * kBlockBytes, count, ahead, memory);
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

std::string_view ShardReader::beginning_of(const SavedTensor& tensor, const SavedChunk& chunk,
                                           const ByteRun& run, ReadAhead* ahead) {
  const std::uint64_t index = run.from / kBlockBytes;
  if (!chunk.checksums.empty())
    return block(tensor, chunk, index, ahead).substr(run.from % kBlockBytes, run.bytes);
  return taken(chunk, run.from, std::min(run.bytes, (index + 1) * kBlockBytes - run.from), ahead);
}

// As ExtentWalk says. An extent of one run is read where it belongs.
void ShardReader::read_unverified(const SavedChunk& chunk, ByteRuns runs, char* target,
                                  ReadAhead* ahead) {
  ExtentWalk extents(runs);
  std::optional<ByteRun> run = runs.next();
  while (const std::optional<ExtentWalk::Extent> extent = extents.next()) {
    const std::uint64_t end = extent->from + extent->bytes;
    char* const place = run->bytes >= extent->bytes ? target + run->to : nullptr;
    const std::string_view bytes = taken(chunk, extent->from, extent->bytes, ahead, place);
    while (run && run->from < end) {
      const std::uint64_t count = std::min(run->bytes, end - run->from);
      const char* const from = bytes.data() + (run->from - extent->from);
      if (from != target + run->to) std::memcpy(target + run->to, from, count);
      *run = {run->from + count, run->to + count, run->bytes - count};
      if (run->bytes == 0) run = runs.next();
    }
  }
}

std::string_view ShardReader::block(const SavedTensor& tensor, const SavedChunk& chunk,
                                    std::uint64_t index, ReadAhead* ahead) {
  const std::uint64_t all = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
  if (holds(chunk, index)) return held_;
  return verified(tensor, chunk, index, std::min(kBlockBytes, all - index * kBlockBytes), ahead);
}

void ShardReader::read(const SavedTensor& tensor, const SavedChunk& chunk, ByteRuns runs,
                       char* target, ReadAhead* ahead) {
  if (chunk.checksums.empty()) return read_unverified(chunk, std::move(runs), target, ahead);
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
