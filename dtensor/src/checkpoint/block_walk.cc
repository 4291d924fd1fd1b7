#include "checkpoint/block_walk.h"

#include <algorithm>
#include <utility>

#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

void BlockWalk::go_on(const SavedTensor& tensor, const SavedChunk& chunk, ByteRuns runs) {
  chunk_ = &chunk;
  bytes_ = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
  runs_ = std::move(runs);
  run_ = {};
}

std::optional<FilePart> BlockWalk::next() {
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
