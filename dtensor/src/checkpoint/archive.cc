#include "dtrun/dtensor/checkpoint/archive.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "checkpoint/foreign_shard.h"
#include "checkpoint/read_ahead.h"
#include "checkpoint/read_manifest.h"
#include "checkpoint/shard_file.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

namespace {

/// What stream() holds of a tensor.
constexpr std::uint64_t kSlabBytes = std::uint64_t{4} << 20;
/// Files that are open at once.
constexpr std::size_t kMostOpenFiles = 64;

}  // namespace

std::string_view archive_kind_name(ArchiveKind kind) {
  switch (kind) {
    case ArchiveKind::checkpoint:
      return "checkpoint";
    case ArchiveKind::safetensors_folder:
      return "folder of .safetensors files";
    case ArchiveKind::safetensors_file:
      break;
  }
  return ".safetensors file";
}

Archive::Archive(const std::string& path)
    : own_files_(std::make_unique<SystemFileCalls>()),
      files_(own_files_.get()),
      path_(path),
      folder_(path) {
  open();
}

Archive::Archive(FileCalls& files, const std::string& path)
    : files_(&files), path_(path), folder_(path) {
  open();
}

Archive::Archive(Archive&&) noexcept = default;
Archive::~Archive() = default;

void Archive::open() {
  if (is_there(*files_, path_in(path_, std::string(kManifestName)))) {
    manifest_ = read_manifest(*files_, path_);
  } else if (is_folder(*files_, path_in(path_, "."))) {
    kind_ = ArchiveKind::safetensors_folder;
    manifest_ = read_foreign_folder(*files_, folder_);
  } else {
    kind_ = ArchiveKind::safetensors_file;
    folder_ = parent_of(path_);
    open_foreign_file(name_of(path_));
  }
  readers_.resize(manifest_.files.size());
}

void Archive::open_foreign_file(const std::string& name) {
  add_foreign_shard(*files_, folder_, name, manifest_);
  finish_foreign(manifest_, path_);
}

const SavedTensor& Archive::tensor(const std::string& name) const {
  const SavedTensor* const found = manifest_.find(name);
  if (found != nullptr) return *found;
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(manifest_.tensors.size(), 8); ++i)
    names += (i == 0 ? "" : ", ") + manifest_.tensors[i].name;
  throw Error(ErrorCode::kNotFound, "no tensor \"" + name + "\" in " + path_,
              "there are " + std::to_string(manifest_.tensors.size()) + ": " + names,
              "dtrun-ckpt inspect lists them");
}

std::uint64_t Archive::bytes() const {
  return std::accumulate(
      manifest_.tensors.begin(), manifest_.tensors.end(), std::uint64_t{0},
      [](std::uint64_t sum, const SavedTensor& tensor) { return sum + tensor.bytes(); });
}

ShardReader& Archive::reader(std::size_t file) {
  if (readers_[file] == nullptr) {
    const auto open = std::ranges::count_if(readers_, [](const auto& one) { return !!one; });
    if (static_cast<std::size_t>(open) >= kMostOpenFiles) {
      for (auto& one : readers_) one.reset();
    }
    readers_[file] = std::make_unique<ShardReader>(*files_, folder_, manifest_.files[file],
                                                   FileHeader::verified, PageCache::passed_by);
  }
  return *readers_[file];
}

BlockWalk Archive::walk() const {
  BlockWalk walk(readers_.size());
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    if (readers_[i] == nullptr) continue;
    if (const std::optional<std::uint64_t> held = readers_[i]->held()) walk.hold(i, *held);
  }
  return walk;
}

void Archive::read(const SavedTensor& tensor, const Box& box, char* target) {
  read(tensor, box, target, nullptr);
}

void Archive::read(const SavedTensor& tensor, const Box& box, char* target, ReadAhead* ahead) {
  const std::size_t item = tensors::item_size(tensor.dtype);
  for (const SavedChunk& chunk : tensor.chunks) {
    const ByteRuns runs(chunk.box, box, item);
    if (runs.elements() > 0) reader(chunk.file).read(tensor, chunk, runs, target, ahead);
  }
}

// As the first file has it.
bool Archive::is_cached(const SavedTensor& tensor, const Box& box) {
  const auto first = std::ranges::find_if(tensor.chunks, [&](const SavedChunk& chunk) {
    return tensors::numel(intersection(chunk.box, box).shape) > 0;
  });
  return first != tensor.chunks.end() && reader(first->file).is_cached();
}

void Archive::stream(const SavedTensor& tensor, const Box& box, const Sink& sink) {
  const std::size_t item = tensors::item_size(tensor.dtype);
  const std::vector<Box> slabs = slabs_of(box, item, kSlabBytes);
  std::optional<ReadAhead> ahead;
  if (tensors::bytes_of_shape(box.shape, tensor.dtype) >= kLeastReadAhead &&
      !is_cached(tensor, box)) {
    // As read() goes, from slab to slab, from chunk to chunk.
    ahead.emplace(*files_, folder_, manifest_, PageCache::passed_by, walk(),
                  [&, slab = std::size_t{0}, chunk = std::size_t{0}](BlockWalk& walk) mutable {
                    if (chunk == tensor.chunks.size()) chunk = 0, ++slab;
                    if (slab == slabs.size()) return false;
                    const SavedChunk& one = tensor.chunks[chunk++];
                    walk.go_on(tensor, one, ByteRuns(one.box, slabs[slab], item));
                    return true;
                  });
  }
  std::string bytes;
  for (const Box& slab : slabs) {
    if (pass_on(tensor, slab, sink, ahead ? &*ahead : nullptr)) continue;
    bytes.resize(static_cast<std::size_t>(tensors::numel(slab.shape)) * item);
    read(tensor, slab, bytes.data(), ahead ? &*ahead : nullptr);
    sink(bytes);
  }
}

// Rows that stand one after the other in one chunk, as most do, need no memory of their own.
bool Archive::pass_on(const SavedTensor& tensor, const Box& slab, const Sink& sink,
                      ReadAhead* ahead) {
  for (const SavedChunk& chunk : tensor.chunks) {
    ByteRuns runs(chunk.box, slab, tensors::item_size(tensor.dtype));
    if (runs.elements() == 0) continue;
    std::optional<ByteRun> run = runs.next();
    if (run->bytes != tensors::bytes_of_shape(slab.shape, tensor.dtype)) return false;
    ShardReader& from = reader(chunk.file);
    while (run->bytes > 0) {
      const std::string_view part = from.beginning_of(tensor, chunk, *run, ahead);
      sink(part);
      *run = {run->from + part.size(), 0, run->bytes - part.size()};
    }
    return true;
  }
  return false;
}

void Archive::verify(const SavedTensor& tensor, const SavedChunk& chunk, const Sink& sink) {
  ShardReader& from = reader(chunk.file);
  const std::uint64_t bytes = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
  std::optional<ReadAhead> ahead;
  if (bytes >= kLeastReadAhead && !from.is_cached()) {
    ahead.emplace(*files_, folder_, manifest_, PageCache::passed_by, walk(),
                  [&, is_over = false](BlockWalk& walk) mutable {
                    if (std::exchange(is_over, true)) return false;
                    walk.go_on(tensor, chunk,
                               ByteRuns(chunk.box, chunk.box, tensors::item_size(tensor.dtype)));
                    return true;
                  });
  }
  for (std::uint64_t i = 0; i < blocks_of(bytes); ++i) {
    const std::string_view block = from.block(tensor, chunk, i, ahead ? &*ahead : nullptr);
    if (sink) sink(block);
  }
}

std::vector<Box> slabs_of(const Box& box, std::size_t item_bytes, std::uint64_t most_bytes) {
  std::vector<Box> slabs;
  if (tensors::numel(box.shape) == 0) return slabs;
  // The outermost dim that is cut: what is within one step of it fits.
  std::size_t cut = box.shape.size();
  std::uint64_t within = item_bytes;
  while (cut > 0 && within * static_cast<std::uint64_t>(box.shape[cut - 1]) <= most_bytes)
    within *= static_cast<std::uint64_t>(box.shape[--cut]);
  if (cut == 0) return {box};
  const std::size_t dim = cut - 1;
  const auto rows = static_cast<std::int64_t>(std::max<std::uint64_t>(1, most_bytes / within));
  Box slab = box;
  for (std::size_t d = 0; d < dim; ++d) slab.shape[d] = 1;
  for (bool is_over = false; !is_over;) {
    for (std::int64_t at = 0; at < box.shape[dim]; at += rows) {
      slab.offsets[dim] = box.offsets[dim] + at;
      slab.shape[dim] = std::min(rows, box.shape[dim] - at);
      slabs.push_back(slab);
    }
    std::size_t d = dim;
    while (d > 0 && ++slab.offsets[d - 1] == box.offsets[d - 1] + box.shape[d - 1]) {
      slab.offsets[d - 1] = box.offsets[d - 1];
      --d;
    }
    is_over = d == 0;
  }
  return slabs;
}

}  // namespace dtrun::dtensor::dcp
