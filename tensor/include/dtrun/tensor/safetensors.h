// .safetensors: the file of named tensors that PyTorch's and HuggingFace's programs read: the
// length of a header, the header as JSON, the elements. Nothing in it is executed.
// github.com/huggingface/safetensors. Thread-safe for different paths.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

struct NamedTensors {
  std::vector<std::pair<std::string, LocalTensor>> tensors;
  std::map<std::string, std::string> metadata = {};  ///< texts of the user's

  /// @throws Error kNotFound naming the names there are
  const LocalTensor& at(const std::string& name) const;
};

/// Row-major. The file is there whole or not at all. Elements of wider dtypes come first, so that
/// all are aligned.
/// @throws Error kInvalidArgument for a name that comes twice and "__metadata__"; kSystem naming
/// path and reason
void save_safetensors(const std::filesystem::path& path, const NamedTensors& named);

/// In the order of their elements. @throws Error kNotFound; kInvalidArgument where the file is
/// none, has gaps, overlaps or bytes that belong to no tensor, or another dtype, naming the path
/// and what was found
NamedTensors load_safetensors(const std::filesystem::path& path);

}  // namespace dtrun::tensors
