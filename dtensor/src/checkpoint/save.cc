// Saving: the ranks offer what they have, all make the same plan, each writes its share, one of
// them commits.
#include <algorithm>
#include <memory>

#include "checkpoint/agreement_of.h"
#include "checkpoint/commit.h"
#include "checkpoint/flat_state.h"
#include "checkpoint/rank_message.h"
#include "checkpoint/shard_file.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;

namespace {

/// The part of a rank's elements that is one piece of its box.
LocalTensor elements_of(const Tensor& tensor, const Box& own, const Box& piece) {
  LocalTensor elements = tensor.local();
  for (std::size_t dim = 0; dim < piece.shape.size(); ++dim)
    elements = elements.narrow(static_cast<int>(dim), piece.offsets[dim] - own.offsets[dim],
                               piece.shape[dim]);
  return elements.to(tensors::kCpu).contiguous();
}

/// As the manifest has them: a NaN is the same as that NaN.
bool are_same(const Value& a, const Value& b) {
  const double* const number_a = std::get_if<double>(&a);
  const double* const number_b = std::get_if<double>(&b);
  if (number_a == nullptr || number_b == nullptr) return a == b;
  return exact_text(*number_a) == exact_text(*number_b);
}

/// One save, on one rank.
class Saving {
 public:
  Saving(const std::string& folder, const State& state, const SaveOptions& options,
         Agreement& agreement, FileCalls& files)
      : folder_(folder), state_(state), options_(options), agreement_(agreement), files_(files) {}

  SaveReport run() {
    try {
      offer();
      open();
      write();
      commit();
    } catch (...) {
      // An exception that nobody catches unwinds nothing, so the folder is removed here.
      partial_.reset();
      throw;
    }
    SaveReport report;
    report.generation = manifest_.generation;
    for (const PlannedChunk& chunk : plan_.chunks) {
      report.bytes += plan_.bytes_of(chunk);
      if (chunk.writer == agreement_.rank()) report.own_bytes += plan_.bytes_of(chunk);
    }
    return report;
  }

 private:
  void offer() {
    const std::vector<std::string> texts = together(agreement_, [&] {
      flat_ = flattened(state_);
      RankOffer own{{}, flat_.values, flat_.rank_values, options_.split_above};
      for (const auto& [name, tensor] : flat_.tensors)
        own.parts.push_back(part_of_tensor(name, tensor));
      return to_text(own);
    });
    // All ranks find the same, or throw the same.
    std::vector<std::vector<TensorPart>> parts;
    std::uint64_t split_above = 0;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      RankOffer rank_offer = parse_offer(texts[rank]);
      if (rank == 0) split_above = rank_offer.split_above;
      if (rank_offer.split_above != split_above)
        throw Error(ErrorCode::kDisagreement,
                    "rank " + std::to_string(rank) +
                        " saves with split_above = " + std::to_string(rank_offer.split_above),
                    "rank 0 has " + std::to_string(split_above),
                    "the same SaveOptions on all ranks");
      parts.push_back(std::move(rank_offer.parts));
      add_values(rank_offer, static_cast<int>(rank));
    }
    plan_ = plan_save(parts, split_above);
  }

  void add_values(const RankOffer& rank_offer, int rank) {
    for (const auto& [name, value] : rank_offer.values) {
      const auto [known, is_new] = manifest_.values.try_emplace(name, value);
      if (!is_new && !are_same(known->second, value))
        throw Error(
            ErrorCode::kDisagreement,
            "\"" + name + "\" is " + value_text(value) + " on rank " + std::to_string(rank) +
                " and " + value_text(known->second) + " on a rank before it",
            "a value is the same on all ranks", "rank_values, for what each rank has of its own");
    }
    for (const auto& [name, value] : rank_offer.rank_values) {
      std::vector<Value>& list = manifest_.rank_values[name];
      if (list.size() != static_cast<std::size_t>(rank))
        throw Error(ErrorCode::kDisagreement, "not all ranks save \"" + name + "\"",
                    "rank " + std::to_string(rank) + " has it, one before it has not",
                    "the same names on all ranks");
      list.push_back(value);
    }
    for (const auto& [name, list] : manifest_.rank_values) {
      if (list.size() != static_cast<std::size_t>(rank) + 1)
        throw Error(ErrorCode::kDisagreement, "not all ranks save \"" + name + "\"",
                    "rank " + std::to_string(rank) + " has it not", "the same names on all ranks");
    }
  }

  /// Makes the temporary folder, which all ranks must see.
  void open() {
    manifest_.ranks = agreement_.size();
    const std::vector<std::string> texts = together(agreement_, [&]() -> std::string {
      if (agreement_.rank() != 0) return "";
      const std::uint64_t generation = random_generation();
      partial_ = std::make_unique<PartialFolder>(files_, folder_, generation, options_.existing);
      return std::to_string(generation);
    });
    manifest_.generation = std::stoull(texts[0]);
    path_ = partial_name(folder_, manifest_.generation);
    together(agreement_, [&]() -> std::string {
      if (is_folder(files_, path_)) return "";
      throw Error(ErrorCode::kNotFound, "this rank does not see " + path_,
                  "rank 0 has made it; their file systems are not the same one",
                  "a folder that all nodes share");
    });
  }

  void write() {
    std::vector<ShardPiece> pieces;
    written_ = together(agreement_, [&]() -> std::string {
      for (std::size_t i = 0; i < plan_.chunks.size(); ++i) {
        const PlannedChunk& chunk = plan_.chunks[i];
        if (chunk.writer == agreement_.rank()) pieces.push_back(piece_of(chunk));
      }
      if (pieces.empty()) return "";
      return to_text(write_shard(files_, path_, shard_name(agreement_.rank(), agreement_.size()),
                                 shard_metadata(manifest_.generation, pieces), pieces));
    });
  }

  ShardPiece piece_of(const PlannedChunk& chunk) const {
    const TensorPart& part = plan_.tensors[chunk.tensor];
    const auto found =
        std::ranges::find(flat_.tensors, part.name, [](const auto& entry) { return entry.first; });
    const Box own = *part_of_tensor(part.name, found->second).box;
    return {part.name, part.shape, chunk.box, part.dtype,
            source_of(elements_of(found->second, own, chunk.box))};
  }

  void fill_manifest(const std::vector<std::string>& texts) {
    for (const TensorPart& part : plan_.tensors)
      manifest_.tensors.push_back(
          {part.name, part.dtype, part.shape, part.mesh_shape, part.layout, {}});
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      if (texts[rank].empty()) continue;
      WrittenShard shard = parse_shard(texts[rank]);
      std::size_t next = 0;
      for (const PlannedChunk& planned : plan_.chunks) {
        if (planned.writer != static_cast<int>(rank)) continue;
        SavedChunk& chunk = shard.chunks.at(next++);
        chunk.box = planned.box;
        chunk.file = manifest_.files.size();
        manifest_.tensors[planned.tensor].chunks.push_back(std::move(chunk));
      }
      manifest_.files.push_back(std::move(shard.file));
    }
  }

  void commit() {
    together(agreement_, [&]() -> std::string {
      if (!partial_) return "";
      fill_manifest(written_);
      partial_->commit(manifest_);
      return "";
    });
  }

  const std::string& folder_;
  const State& state_;
  const SaveOptions& options_;
  Agreement& agreement_;
  FileCalls& files_;
  FlatState flat_;
  SavePlan plan_;
  Manifest manifest_;
  std::vector<std::string> written_;  ///< by rank, what each has said of its shard
  std::string path_;
  std::unique_ptr<PartialFolder> partial_;  ///< on rank 0
};

}  // namespace

SaveReport save(const std::string& folder, const State& state, const SaveOptions& options) {
  SystemFileCalls system;
  const std::unique_ptr<Agreement> own = agreement_of(options.group, options.agreement);
  const std::string path = checked_folder(folder);
  return Saving(path, state, options, own ? *own : *options.agreement,
                options.files != nullptr ? *options.files : system)
      .run();
}

}  // namespace dtrun::dtensor::dcp
