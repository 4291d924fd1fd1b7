// Archive: a checkpoint as one process reads it, without a job, piece by piece: a folder that
// dcp::save() has written, one of .safetensors files (HuggingFace's, with or without an index, and
// torch.distributed.checkpoint's), or a single such file. One thread's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/dtensor/checkpoint/file_calls.h"
#include "dtrun/dtensor/checkpoint/manifest.h"

namespace dtrun::dtensor::dcp {

class BlockWalk;
class ReadAhead;
class ShardReader;

enum class ArchiveKind : std::uint8_t {
  checkpoint,          ///< every byte has a checksum
  safetensors_folder,  ///< none has
  safetensors_file,
};
std::string_view archive_kind_name(ArchiveKind kind);

class Archive {
 public:
  /// @throws Error kNotFound for nothing of the kind; kProtocol, kInvalidArgument for a damaged
  /// one; kSystem
  explicit Archive(const std::string& path);
  Archive(FileCalls& files, const std::string& path);
  Archive(Archive&&) noexcept;
  ~Archive();

  ArchiveKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  /// Of foreign files one that was made of their headers; their chunks have no checksums.
  const Manifest& manifest() const { return manifest_; }
  /// @throws Error kNotFound naming what is nearest
  const SavedTensor& tensor(const std::string& name) const;
  /// Elements of a box, row-major. What has a checksum is verified. @throws Error kProtocol,
  /// kSystem
  void read(const SavedTensor& tensor, const Box& box, char* target);
  /// All of a tensor, row-major, at most a few MiB at a time.
  using Sink = std::function<void(std::string_view bytes)>;
  void stream(const SavedTensor& tensor, const Box& box, const Sink& sink);
  /// Reads all of a chunk, block by block. @throws Error kProtocol
  void verify(const SavedTensor& tensor, const SavedChunk& chunk, const Sink& sink = {});
  /// Of all tensors.
  std::uint64_t bytes() const;

 private:
  void read(const SavedTensor& tensor, const Box& box, char* target, ReadAhead* ahead);
  bool is_cached(const SavedTensor& tensor, const Box& box);
  /// A box that is one run of one chunk. @return false: it is not
  bool pass_on(const SavedTensor& tensor, const Box& slab, const Sink& sink, ReadAhead* ahead);
  /// One that knows which blocks the readers hold.
  BlockWalk walk() const;
  void open();
  void open_foreign_file(const std::string& name);
  ShardReader& reader(std::size_t file);

  std::unique_ptr<SystemFileCalls> own_files_;
  FileCalls* files_;
  std::string path_;    ///< as it was given
  std::string folder_;  ///< of the files
  ArchiveKind kind_ = ArchiveKind::checkpoint;
  Manifest manifest_;
  std::vector<std::unique_ptr<ShardReader>> readers_;  ///< by file; null: not opened yet
};

/// Boxes of whole rows, in order, of at most so many bytes, at least one element.
std::vector<Box> slabs_of(const Box& box, std::size_t item_bytes, std::uint64_t most_bytes);

}  // namespace dtrun::dtensor::dcp
