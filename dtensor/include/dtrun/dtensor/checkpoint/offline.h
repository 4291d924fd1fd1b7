// What is done with checkpoints offline, by one process, without a job and a GPU: copied into other
// forms, compared, checked. Tensors stream through a few MiB of memory, however large they are.
// Everything that is written is there whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dtrun/dtensor/checkpoint/archive.h"

namespace dtrun::dtensor::dcp {

/// Called now and then. Bytes of elements.
using Progress = std::function<void(std::uint64_t done, std::uint64_t all)>;

struct OfflineOptions {
  std::vector<std::string> only = {};  ///< patterns of names; empty: all
  Progress progress = {};
  FileCalls* files = nullptr;
};

/// A fault that verify() has found: where, and what.
struct Fault {
  std::string tensor;  ///< empty: of a file
  std::string text;
};
struct VerifyReport {
  std::uint64_t bytes = 0;
  std::vector<Fault> faults = {};
  bool has_checksums = true;  ///< of what was read; false: only that it is all there
};
/// Reads all bytes, and goes on behind a fault. @throws Error for an archive without a manifest
/// that can be read
VerifyReport verify(const std::string& path, const OfflineOptions& options = {});

/// Whole tensors in one .safetensors file. @throws Error kInvalidArgument where it is there
void merge(Archive& from, const std::string& file, const OfflineOptions& options = {});
/// HuggingFace's form: model-00001-of-00003.safetensors of whole tensors, each of at most so many
/// bytes where its tensors allow it, and model.safetensors.index.json.
void split(Archive& from, const std::string& folder, std::uint64_t most_bytes,
           const OfflineOptions& options = {});
/// How a tensor is to lie, by a pattern of names; the first that fits counts.
struct WantedLayout {
  std::string pattern;
  std::string layout;  ///< in either notation of layout/notation.h
};
/// A checkpoint as the ranks of another mesh would have saved it. Tensors that no layout is told
/// for are cut along their first dim over all ranks. @throws Error kInvalidArgument for a layout
/// that does not fit
void reshard(Archive& from, const std::string& folder, const std::vector<int>& mesh_shape,
             const std::vector<WantedLayout>& layouts, const OfflineOptions& options = {});
/// numpy's file of one tensor. @throws Error kInvalidArgument for bf16
void export_npy(Archive& from, const std::string& tensor, const std::string& file,
                const OfflineOptions& options = {});

struct TensorDifference {
  std::string name;
  std::string text;            ///< "only in b", "f32[2] and f32[3]", "3 elements differ"
  std::uint64_t elements = 0;  ///< that differ
  double largest = 0;          ///< difference of two of them
};
/// Names, shapes, dtypes and elements, bit by bit; then the values.
std::vector<TensorDifference> diff(Archive& a, Archive& b, const OfflineOptions& options = {});

/// The checkpoints of a series that go, where so many are kept: complete ones count, the last one
/// of them always stays. @return their paths, and those of folders that killed saves left
std::vector<std::string> prunable(const std::string& folder, int keep, FileCalls& files);
/// @return false: it stays, for it has what is no checkpoint's, or another process writes to it
/// @throws Error kSystem
bool remove_checkpoint(const std::string& path, FileCalls& files);

}  // namespace dtrun::dtensor::dcp
