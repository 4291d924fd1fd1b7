#include "checkpoint/chunk_reads.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "checkpoint/read_ahead.h"
#include "dtrun/tensor/safetensors_header.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::dtensor::dcp {
namespace {

/// Some of what a chunk and a box have in common.
struct Slice {
  const ChunkRead* read;
  Box part;
  std::uint64_t bytes;
};

std::uint64_t bytes_of(const ChunkRead& read, const Box& box) {
  return tensors::bytes_of_shape(box.shape, read.tensor->dtype);
}

ByteRuns runs_of(const Slice& slice) {
  const ChunkRead& read = *slice.read;
  return ByteRuns(read.chunk->box, read.box, tensors::item_size(read.tensor->dtype), slice.part)
      .within(read.begin, read.end);
}

/// Cuts along the first dim that has several places. Where a row of the chunk is a part of a block
/// or some blocks, slices begin where blocks do, so that no block is read twice.
void add_slices(const ChunkRead& read, std::uint64_t task_bytes, std::vector<Slice>& slices) {
  const Box& chunk = read.chunk->box;
  const Box common = intersection(chunk, read.box);
  const std::uint64_t bytes = bytes_of(read, common);
  if (bytes == 0) return;
  std::size_t dim = 0;
  while (dim < common.shape.size() && common.shape[dim] == 1) ++dim;
  if (bytes < 2 * task_bytes || dim == common.shape.size()) {
    slices.push_back({&read, common, bytes});
    return;
  }
  std::uint64_t chunk_row = bytes_of(read, chunk);
  for (std::size_t outer = 0; outer <= dim; ++outer)
    chunk_row /= static_cast<std::uint64_t>(chunk.shape[outer]);
  const auto aligned = static_cast<std::int64_t>(kBlockBytes / std::gcd(kBlockBytes, chunk_row));
  const std::uint64_t row = bytes / static_cast<std::uint64_t>(common.shape[dim]);
  const std::int64_t rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(task_bytes / row));
  for (std::int64_t begin = 0; begin < common.shape[dim];) {
    std::int64_t end = begin + rows;
    const std::int64_t in_chunk = common.offsets[dim] - chunk.offsets[dim];
    if (aligned <= rows) end -= (in_chunk + end) % aligned;
    Box part = common;
    part.offsets[dim] += begin;
    part.shape[dim] = std::min(end, common.shape[dim]) - begin;
    begin += part.shape[dim];
    slices.push_back({&read, part, bytes_of(read, part)});
  }
}

/// Neighbours.
using Task = std::pair<const Slice*, const Slice*>;

std::vector<Task> tasks_of(const std::vector<Slice>& slices, std::uint64_t task_bytes) {
  std::vector<Task> tasks;
  std::uint64_t bytes = task_bytes;
  for (const Slice& slice : slices) {
    if (bytes >= task_bytes) {
      tasks.emplace_back(&slice, &slice);
      bytes = 0;
    }
    bytes += slice.bytes;
    tasks.back().second = &slice + 1;
  }
  return tasks;
}

/// The reads of one call.
class Reading {
 public:
  Reading(FileCalls& files, const std::string& folder, const Manifest& manifest, PageCache cache)
      : files_(files),
        folder_(folder),
        manifest_(manifest),
        cache_(cache),
        known_headers_(manifest.files.size()) {}

  /// @return bytes of chunks
  std::uint64_t run(const Task& task) {
    std::uint64_t bytes = 0;
    std::optional<ShardReader> reader;
    std::optional<ReadAhead> ahead;
    std::size_t open = 0;
    for (const Slice* slice = task.first; slice != task.second; ++slice) {
      const ChunkRead& read = *slice->read;
      if (!reader || open != read.chunk->file) {
        if (reader) bytes += reader->bytes_read();
        open = read.chunk->file;
        // The thread that is the first to read of a file looks at its header.
        const bool is_known = known_headers_[open].exchange(true);
        reader.emplace(files_, folder_, manifest_.files[open],
                       is_known ? FileHeader::known : FileHeader::verified, cache_);
      }
      if (slice == task.first && bytes_of(task) >= kLeastReadAhead && !reader->is_cached())
        read_ahead(task, ahead);
      reader->read(*read.tensor, *read.chunk, runs_of(*slice), read.memory,
                   ahead ? &*ahead : nullptr);
    }
    return reader ? bytes + reader->bytes_read() : bytes;
  }

 private:
  static std::uint64_t bytes_of(const Task& task) {
    return std::accumulate(task.first, task.second, std::uint64_t{0},
                           [](std::uint64_t sum, const Slice& slice) { return sum + slice.bytes; });
  }
  void read_ahead(const Task& task, std::optional<ReadAhead>& ahead) {
    ahead.emplace(files_, folder_, manifest_, cache_, BlockWalk(manifest_.files.size()),
                  [slice = task.first, end = task.second](BlockWalk& walk) mutable {
                    if (slice == end) return false;
                    walk.go_on(*slice->read->tensor, *slice->read->chunk, runs_of(*slice));
                    ++slice;
                    return true;
                  });
  }

  FileCalls& files_;
  const std::string& folder_;
  const Manifest& manifest_;
  const PageCache cache_;
  std::vector<std::atomic<bool>> known_headers_;
};

}  // namespace

std::uint64_t read_chunks(FileCalls& files, const std::string& folder, const Manifest& manifest,
                          const std::vector<ChunkRead>& reads, PageCache cache,
                          std::uint64_t task_bytes) {
  if (tensors::num_threads() == 1) task_bytes = ~std::uint64_t{0} / 2;
  std::vector<Slice> slices;
  for (const ChunkRead& read : reads) add_slices(read, task_bytes, slices);
  std::erase_if(slices, [](const Slice& slice) { return !runs_of(slice).next(); });
  std::ranges::stable_sort(slices, {}, [](const Slice& slice) {
    return std::tuple(slice.read->chunk->file, slice.read->chunk->begin);
  });
  const std::vector<Task> tasks = tasks_of(slices, task_bytes);
  std::vector<std::uint64_t> bytes(tasks.size());
  Reading reading(files, folder, manifest, cache);
  tensors::parallel_for_each(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i) {
    bytes[static_cast<std::size_t>(i)] = reading.run(tasks[static_cast<std::size_t>(i)]);
  });
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

}  // namespace dtrun::dtensor::dcp
