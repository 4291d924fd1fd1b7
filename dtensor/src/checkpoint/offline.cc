// What offline.h makes of checkpoints: copies in other forms.
#include "dtrun/dtensor/checkpoint/offline.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "checkpoint/agreement_of.h"
#include "checkpoint/commit.h"
#include "checkpoint/flat_state.h"
#include "checkpoint/safetensors_index.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/shard_writer.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/checkpoint/plan.h"
#include "dtrun/dtensor/layout/notation.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

namespace {

/// The caller's, or the machine's.
class ChosenFiles {
 public:
  explicit ChosenFiles(const OfflineOptions& options) : given_(options.files) {}
  FileCalls& get() { return given_ != nullptr ? *given_ : system_; }

 private:
  FileCalls* const given_;
  SystemFileCalls system_;
};

Box whole_box(const Shape& shape) {
  return {Shape(shape.size(), 0), shape};
}

std::vector<const SavedTensor*> chosen(const Archive& from, const OfflineOptions& options) {
  std::vector<const SavedTensor*> all;
  for (const SavedTensor& tensor : from.manifest().tensors) {
    if (is_chosen(tensor.name, options.only)) all.push_back(&tensor);
  }
  if (all.empty() && !from.manifest().tensors.empty())
    throw Error(ErrorCode::kInvalidArgument, "no tensor of " + from.path() + " is chosen",
                "the patterns fit none of its names", "dtrun-ckpt inspect lists them");
  return all;
}

/// Tells of bytes as they pass.
class Passing {
 public:
  Passing(const std::vector<const SavedTensor*>& tensors, const Progress& progress)
      : progress_(progress) {
    for (const SavedTensor* const tensor : tensors) all_ += tensor->bytes();
    if (progress_) progress_(0, all_);
  }
  ShardPiece piece(Archive& from, const SavedTensor& tensor, const Box& box) {
    return {tensor.name, tensor.shape, box, tensor.dtype,
            [this, &from, &tensor, box](const ByteSink& sink) {
              from.stream(tensor, box, [&](std::string_view bytes) {
                sink(bytes);
                add(bytes.size());
              });
            }};
  }
  void add(std::uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, all_);
  }

 private:
  const Progress& progress_;
  std::uint64_t done_ = 0, all_ = 0;
};

/// A file that is written under another name, and removed unless it is finished.
class PartialFile {
 public:
  PartialFile(FileCalls& files, const std::string& path)
      : files_(files), path_(path), partial_(partial_name(path, random_generation())) {
    if (is_there(files, path))
      throw Error(ErrorCode::kInvalidArgument, path + " is there already", "", "another name");
  }
  ~PartialFile() {
    if (!is_over_) files_.remove(partial_);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  std::string name() const { return name_of(partial_); }
  std::string folder() const { return parent_of(partial_); }
  void finish() {
    if (files_.rename(partial_, path_) < 0) throw base::system_error("give its name to " + path_);
    is_over_ = true;
    sync_folder(files_, folder());
  }

 private:
  FileCalls& files_;
  const std::string path_;
  const std::string partial_;
  bool is_over_ = false;
};

/// Parts of the tensors, by size, in the order of their names.
std::vector<std::vector<const SavedTensor*>> parts_below(
    const std::vector<const SavedTensor*>& tensors, std::uint64_t most_bytes) {
  std::vector<std::vector<const SavedTensor*>> parts(1);
  std::uint64_t bytes = 0;
  for (const SavedTensor* const tensor : tensors) {
    if (!parts.back().empty() && bytes + tensor->bytes() > most_bytes) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(tensor);
    bytes += tensor->bytes();
  }
  return parts;
}

Layout layout_for(const SavedTensor& tensor, const std::vector<int>& mesh_shape,
                  const std::vector<WantedLayout>& layouts) {
  for (const WantedLayout& wanted : layouts) {
    if (!is_chosen(tensor.name, {wanted.pattern})) continue;
    const Layout layout = parse_layout(wanted.layout, tensor.shape, mesh_shape);
    for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
      if (layout.is_partial(axis))
        throw Error(ErrorCode::kInvalidArgument,
                    "\"" + tensor.name + "\" cannot be " + wanted.layout,
                    "what is saved is not Partial", "Replicate or Shard");
    }
    return layout;
  }
  const Placement placement = tensor.shape.empty() ? Placement(Replicate()) : Placement(Shard(0));
  return make_layout(tensor.shape, mesh_shape, Placements(mesh_shape.size(), placement));
}

/// What the ranks of a mesh would have.
std::vector<std::vector<TensorPart>> parts_on_mesh(const std::vector<const SavedTensor*>& tensors,
                                                   const std::vector<int>& mesh_shape,
                                                   const std::vector<WantedLayout>& layouts) {
  std::int64_t ranks = 1;
  for (const int size : mesh_shape) {
    if (size < 1 || (ranks *= size) > 1 << 20)
      throw Error(ErrorCode::kInvalidArgument, "there is no such mesh", "",
                  "axes of at least one rank, at most 1,048,576 ranks");
  }
  if (mesh_shape.empty() || mesh_shape.size() > Layout::kMaxAxes)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a mesh of {} axes", mesh_shape.size()),
                "", fmt::format("1 to {}", Layout::kMaxAxes));
  std::vector<std::vector<TensorPart>> parts(static_cast<std::size_t>(ranks));
  for (const SavedTensor* const tensor : tensors) {
    const Layout layout = layout_for(*tensor, mesh_shape, layouts);
    std::vector<int> coordinate(mesh_shape.size(), 0);
    for (std::vector<TensorPart>& rank : parts) {
      rank.push_back({tensor->name, tensor->dtype, tensor->shape,
                      local_box(tensor->shape, mesh_shape, coordinate, layout), mesh_shape,
                      layout.to_string()});
      std::size_t axis = mesh_shape.size();
      while (axis > 0 && ++coordinate[axis - 1] == mesh_shape[axis - 1]) coordinate[--axis] = 0;
    }
  }
  return parts;
}

/// So many shards are written at once: their writers have 6 MiB each.
constexpr int kShardsAtOnce = 8;
constexpr std::size_t kBlocksOfEach = 3;

/// Shards of several ranks, which are written side by side: whatever the source has of a tensor is
/// read once for all of them. Row-major bytes of a box have those of each box in it in its order.
class SideBySide {
 public:
  SideBySide(FileCalls& files, const std::string& folder, const SavePlan& plan,
             std::uint64_t generation)
      : files_(files), folder_(folder), plan_(plan), generation_(generation) {}

  /// What the rank writes.
  void add(int rank, int ranks) {
    Shard shard;
    std::vector<ShardPiece> pieces;
    for (const PlannedChunk& chunk : plan_.chunks) {
      if (chunk.writer != rank) continue;
      const TensorPart& part = plan_.tensors[chunk.tensor];
      shard.chunks.push_back(&chunk);
      pieces.push_back({part.name, part.shape, chunk.box, part.dtype, nullptr});
    }
    if (pieces.empty()) return;
    shard.writer = std::make_unique<ShardWriter>(files_, folder_, shard_name(rank, ranks),
                                                 shard_metadata(generation_, pieces), pieces,
                                                 Checksums::made, kBlocksOfEach);
    shards_.push_back(std::move(shard));
  }

  void fill(Archive& from, Passing& passing) {
    // As each of the writers orders its pieces.
    std::vector<std::size_t> order(plan_.tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) {
      return tensors::item_size(plan_.tensors[i].dtype);
    });
    for (const std::size_t tensor : order) fill(tensor, from, passing);
  }

  void finish(Manifest& manifest) {
    for (Shard& shard : shards_) {
      WrittenShard written = shard.writer->finish();
      for (std::size_t i = 0; i < shard.chunks.size(); ++i) {
        written.chunks[i].file = manifest.files.size();
        manifest.tensors[shard.chunks[i]->tensor].chunks.push_back(std::move(written.chunks[i]));
      }
      manifest.files.push_back(std::move(written.file));
    }
  }

 private:
  struct Shard {
    std::vector<const PlannedChunk*> chunks;
    std::unique_ptr<ShardWriter> writer;
  };
  struct Target {
    ShardWriter* writer;
    const Box* box;
    std::optional<ByteRuns> runs;
    std::optional<ByteRun> run;
  };

  void fill(std::size_t tensor, Archive& from, Passing& passing) {
    std::vector<Target> targets;
    Box all;
    for (const Shard& shard : shards_) {
      for (const PlannedChunk* const chunk : shard.chunks) {
        if (chunk->tensor != tensor) continue;
        all = targets.empty() ? chunk->box : hull(all, chunk->box);
        targets.push_back({shard.writer.get(), &chunk->box, std::nullopt, std::nullopt});
      }
    }
    if (targets.empty()) return;
    const SavedTensor& saved = from.tensor(plan_.tensors[tensor].name);
    for (Target& target : targets) {
      target.runs.emplace(all, *target.box, tensors::item_size(saved.dtype));
      target.run = target.runs->next();
    }
    std::uint64_t at = 0;
    from.stream(saved, all, [&](std::string_view bytes) {
      std::uint64_t taken = 0;
      for (Target& target : targets) taken += take(target, at, bytes);
      at += bytes.size();
      passing.add(taken);
    });
    for (const Target& target : targets) target.writer->end_piece();
  }

  /// @return bytes
  static std::uint64_t take(Target& target, std::uint64_t at, std::string_view bytes) {
    std::uint64_t taken = 0;
    while (target.run && target.run->from < at + bytes.size()) {
      const std::string_view part = bytes.substr(target.run->from - at, target.run->bytes);
      target.writer->write(part);
      taken += part.size();
      target.run = ByteRun{target.run->from + part.size(), 0, target.run->bytes - part.size()};
      if (target.run->bytes == 0) target.run = target.runs->next();
    }
    return taken;
  }

  /// The least box that has both.
  static Box hull(const Box& a, const Box& b) {
    Box box = a;
    for (std::size_t dim = 0; dim < a.shape.size(); ++dim) {
      const std::int64_t end =
          std::max(a.offsets[dim] + a.shape[dim], b.offsets[dim] + b.shape[dim]);
      box.offsets[dim] = std::min(a.offsets[dim], b.offsets[dim]);
      box.shape[dim] = end - box.offsets[dim];
    }
    return box;
  }

  FileCalls& files_;
  const std::string folder_;
  const SavePlan& plan_;
  const std::uint64_t generation_;
  std::vector<Shard> shards_;
};

}  // namespace

void merge(Archive& from, const std::string& file, const OfflineOptions& options) {
  const std::vector<const SavedTensor*> tensors = chosen(from, options);
  ChosenFiles chosen_files(options);
  FileCalls& files = chosen_files.get();
  PartialFile partial(files, file);
  Passing passing(tensors, options.progress);
  std::vector<ShardPiece> pieces;
  for (const SavedTensor* const tensor : tensors)
    pieces.push_back(passing.piece(from, *tensor, whole_box(tensor->shape)));
  try {
    write_shard(files, partial.folder(), partial.name(), {{"format", "pt"}}, pieces,
                Checksums::none);
  } catch (const Error& error) {
    throw Error(error.code(), "cannot merge " + from.path() + ": " + error.summary(), error.why(),
                error.remedy());
  }
  partial.finish();
}

void split(Archive& from, const std::string& folder, std::uint64_t most_bytes,
           const OfflineOptions& options) {
  const std::vector<const SavedTensor*> tensors = chosen(from, options);
  ChosenFiles chosen_files(options);
  FileCalls& files = chosen_files.get();
  PartialFolder partial(files, checked_folder(folder), random_generation(), Existing::refuse);
  Passing passing(tensors, options.progress);
  const auto parts = parts_below(tensors, most_bytes);
  SafetensorsIndex index;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    std::vector<ShardPiece> pieces;
    for (const SavedTensor* const tensor : parts[i]) {
      pieces.push_back(passing.piece(from, *tensor, whole_box(tensor->shape)));
      index.files[tensor->name] = name;
      bytes += tensor->bytes();
    }
    write_shard(files, partial.path(), name, {{"format", "pt"}}, pieces, Checksums::none);
  }
  OpenFile file = OpenFile::create(files, path_in(partial.path(), std::string(kIndexName)));
  file.write(index_text(index, bytes));
  file.sync();
  file.close();
  partial.commit();
}

void reshard(Archive& from, const std::string& folder, const std::vector<int>& mesh_shape,
             const std::vector<WantedLayout>& layouts, const OfflineOptions& options) {
  const std::vector<const SavedTensor*> tensors = chosen(from, options);
  ChosenFiles chosen_files(options);
  FileCalls& files = chosen_files.get();
  const auto parts = parts_on_mesh(tensors, mesh_shape, layouts);
  const SavePlan plan = plan_save(parts);
  Manifest manifest = from.manifest();
  manifest.generation = random_generation();
  manifest.files.clear();
  manifest.tensors.clear();
  for (const TensorPart& part : plan.tensors)
    manifest.tensors.push_back(
        {part.name, part.dtype, part.shape, part.mesh_shape, part.layout, {}});
  PartialFolder partial(files, checked_folder(folder), manifest.generation, Existing::refuse);
  Passing passing(tensors, options.progress);
  const int ranks = static_cast<int>(parts.size());
  for (int rank = 0; rank < ranks; rank += kShardsAtOnce) {
    SideBySide shards(files, partial.path(), plan, manifest.generation);
    for (int i = rank; i < std::min(rank + kShardsAtOnce, ranks); ++i) shards.add(i, ranks);
    shards.fill(from, passing);
    shards.finish(manifest);
  }
  partial.commit(manifest);
}

void export_npy(Archive& from, const std::string& name, const std::string& file,
                const OfflineOptions& options) {
  const SavedTensor& tensor = from.tensor(name);
  const std::map<tensors::DType, std::string_view> kinds = {
      {tensors::DType::f64, "<f8"}, {tensors::DType::f32, "<f4"}, {tensors::DType::f16, "<f2"},
      {tensors::DType::i64, "<i8"}, {tensors::DType::i32, "<i4"}, {tensors::DType::i16, "<i2"},
      {tensors::DType::i8, "|i1"},  {tensors::DType::u8, "|u1"},  {tensors::DType::boolean, "|b1"}};
  const auto kind = kinds.find(tensor.dtype);
  if (kind == kinds.end())
    throw Error(ErrorCode::kInvalidArgument, "\"" + name + "\" cannot be written as .npy",
                "numpy has no bf16", "merge, to a .safetensors file");
  std::string shape;
  for (const std::int64_t size : tensor.shape) shape += std::to_string(size) + ", ";
  if (tensor.shape.size() > 1) shape.resize(shape.size() - 2);
  if (tensor.shape.size() == 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   kind->second, shape);
  header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  const std::string length{static_cast<char>(header.size() % 256),
                           static_cast<char>(header.size() / 256)};
  ChosenFiles chosen_files(options);
  FileCalls& files = chosen_files.get();
  PartialFile partial(files, file);
  OpenFile out = OpenFile::create(files, path_in(partial.folder(), partial.name()));
  Passing passing({&tensor}, options.progress);
  out.write(std::string("\x93NUMPY\x01\x00", 8) + length + header);
  passing.piece(from, tensor, whole_box(tensor.shape)).source([&](std::string_view bytes) {
    out.write(bytes);
  });
  out.sync();
  out.close();
  partial.finish();
}

}  // namespace dtrun::dtensor::dcp
