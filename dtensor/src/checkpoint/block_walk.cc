#include "checkpoint/block_walk.h"

#include <algorithm>
#include <utility>

#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

std::optional<ExtentWalk::Extent> ExtentWalk::next() {
  if (!run_) run_ = runs_.next();
  if (!run_) return std::nullopt;
  Extent extent{run_->from, 0};
  const std::uint64_t limit = (extent.from / kBlockBytes + 1) * kBlockBytes;
  for (;;) {
    const std::uint64_t count = std::min(run_->bytes, limit - run_->from);
    const std::uint64_t end = run_->from + count;
    extent.bytes = end - extent.from;
    run_ = ByteRun{end, 0, run_->bytes - count};
    if (run_->bytes > 0) return extent;
    run_ = runs_.next();
    if (!run_ || run_->from >= limit || run_->from - end > kGapBytes) return extent;
  }
}

void BlockWalk::go_on(const SavedTensor& tensor, const SavedChunk& chunk, ByteRuns runs) {
  chunk_ = &chunk;
  bytes_ = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
  run_ = {};
  if (chunk.checksums.empty()) {
    runs_.reset();
    extents_.emplace(std::move(runs));
  } else {
    extents_.reset();
    runs_ = std::move(runs);
  }
}

std::optional<FilePart> BlockWalk::next() {
  if (extents_) {
    const std::optional<ExtentWalk::Extent> extent = extents_->next();
    if (!extent) return std::nullopt;
    held_[chunk_->file].reset();
    return FilePart{chunk_->file, chunk_->begin + extent->from, extent->bytes};
  }
  while (runs_) {
    if (run_.bytes == 0) {
      const std::optional<ByteRun> run = runs_->next();
      if (!run) break;
      run_ = *run;
      continue;
    }
    const std::uint64_t index = run_.from / kBlockBytes;
    const std::uint64_t size = std::min(kBlockBytes, bytes_ - index * kBlockBytes);
    const std::uint64_t count = std::min(run_.bytes, (index + 1) * kBlockBytes - run_.from);
    run_ = {run_.from + count, 0, run_.bytes - count};
    const std::uint64_t begin = chunk_->begin + index * kBlockBytes;
    std::optional<std::uint64_t>& held = held_[chunk_->file];
    if (held == begin) continue;
    held = begin;
    return FilePart{chunk_->file, begin, size};
  }
  return std::nullopt;
}

}  // namespace dtrun::dtensor::dcp
