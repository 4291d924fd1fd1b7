// The index of a model that HuggingFace's writers have cut into several .safetensors files: which
// file has which tensor. A folder may have other .safetensors files beside those. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace dtrun::dtensor::dcp {

/// "model.safetensors.index.json", and with a variant's name before ".index.json".
inline constexpr std::string_view kIndexEnd = ".safetensors.index.json";
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

struct SafetensorsIndex {
  std::map<std::string, std::string> files;  ///< by the tensor's name
};

std::string index_text(const SafetensorsIndex& index, std::uint64_t bytes);
/// @throws Error kProtocol for a text that is none; a file's name that leaves the folder
SafetensorsIndex parse_index(std::string_view text, const std::string& source);

}  // namespace dtrun::dtensor::dcp
