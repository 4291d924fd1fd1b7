// Checkpoints: a State written to a folder by all ranks, and read again by any number of them, on
// any mesh, in any layout. torch.distributed.checkpoint. docs/checkpoints.md.
//
//     dcp::save("runs/7/step-100", {{"model", model}, {"optimizer", optimizer}, {"step", step}});
//     dcp::load("runs/7/step-100", {{"model", model}, {"optimizer", optimizer}, {"step", step}});
//
// Each rank writes its share into .safetensors files of a temporary folder, which gets its name
// when everything is on the disk. The old checkpoint, or the new one, is there at any moment.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/checkpoint/agreement.h"
#include "dtrun/dtensor/checkpoint/file_calls.h"
#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/checkpoint/state.h"

namespace dtrun::dtensor::dcp {

/// Of a save where the folder is there already.
enum class Existing : std::uint8_t { refuse, replace };

struct SaveOptions {
  /// Default: the thread's default group; without one this process is alone.
  std::optional<collectives::ProcessGroup> group = std::nullopt;
  /// Instead of the group.
  Agreement* agreement = nullptr;
  Existing existing = Existing::refuse;
  /// Boxes that several ranks have and that take fewer bytes are written by one of them.
  std::uint64_t split_above = std::uint64_t{4} << 20;
  /// Default: the machine's.
  FileCalls* files = nullptr;
};

struct SaveReport {
  std::uint64_t bytes = 0;      ///< of tensors, all ranks' together
  std::uint64_t own_bytes = 0;  ///< of those that this rank has written
  std::uint64_t generation = 0;
};

/// Collective. All ranks return, or all throw the same Error; then `folder` is as it
/// was, unless a rank or the connection to it is lost after rank 0 has given the new checkpoint its
/// name: it is whole then, and the others throw.
/// @throws Error kInvalidArgument for a Partial tensor, parts that do not make a whole, and a
/// folder that is there; kDisagreement; kNotFound for a folder that a rank does not see; kSystem
SaveReport save(const std::string& folder, const State& state, const SaveOptions& options = {});

/// What a folder has that is loaded.
enum class Source : std::uint8_t {
  checkpoint,
  /// .safetensors files without checksums: HuggingFace's, or torch.distributed.checkpoint's.
  safetensors,
};

struct LoadOptions {
  Source source = Source::checkpoint;
  std::optional<collectives::ProcessGroup> group = std::nullopt;
  Agreement* agreement = nullptr;
  /// Patterns of names ("model.*"; * and ?): others of the state stay as they are. Empty: all.
  /// Of tensors and modules it may fit some. An optimizer, or another part that is restored as one,
  /// stays as it is unless it fits all of it.
  std::vector<std::string> only = {};
  /// Names of the state to those of the checkpoint; a name that ends with "." is a beginning:
  /// {"model.", "teacher."}.
  std::map<std::string, std::string> rename = {};
  /// What the checkpoint lacks stays as it is, as does all of an optimizer, or of another part that
  /// is restored as one, of which it lacks a name.
  bool allow_missing = false;
  FileCalls* files = nullptr;
};

struct LoadReport {
  std::string folder;
  std::vector<std::string> missing;  ///< names that the checkpoint lacks
  std::uint64_t own_bytes = 0;       ///< that this rank has read
  std::uint64_t generation = 0;
};

/// Fills the state's tensors, whatever their layout, mesh and device; numbers are converted to
/// their dtypes. Collective. Every byte is verified, on all ranks, before anything is written.
/// @throws Error kNotFound for a folder without a checkpoint; kProtocol for one that is damaged;
/// kInvalidArgument for names and shapes that do not fit; kSystem
LoadReport load(const std::string& folder, const State& state, const LoadOptions& options = {});

}  // namespace dtrun::dtensor::dcp
