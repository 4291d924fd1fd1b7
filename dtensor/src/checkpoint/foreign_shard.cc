#include "checkpoint/foreign_shard.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "checkpoint/safetensors_index.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_json.h"
#include "dtrun/dtensor/checkpoint/plan.h"
#include "dtrun/dtensor/checkpoint/series.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::Shape;
namespace json = boost::json;

namespace {

constexpr const char* kTorchBoxes = "DCP_SHARDING_INFO";

[[noreturn]] void refuse_shard(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kProtocol, path + " is no part of a checkpoint", why,
              "a folder that was saved as a checkpoint, or a whole copy of it");
}

/// Where the boxes begin, by name.
std::map<std::string, Shape> offsets_in(const tensors::SafetensorsHeader& header,
                                        const std::string& path) {
  std::map<std::string, Shape> offsets;
  const auto found = header.metadata.find(kTorchBoxes);
  if (found == header.metadata.end()) return offsets;
  const json::value parsed = base::parse_unique_json(found->second, path + ", its " + kTorchBoxes);
  if (!parsed.is_object()) refuse_shard(path, "its DCP_SHARDING_INFO is no object");
  for (const auto& [name, one] : parsed.get_object()) {
    const json::value* const list =
        one.is_object() ? one.get_object().if_contains("saved_offsets") : nullptr;
    if (list == nullptr || !list->is_array())
      refuse_shard(path, "its DCP_SHARDING_INFO has no saved_offsets for " + std::string(name));
    Shape& place = offsets[std::string(name)];
    for (const json::value& number : list->get_array()) {
      if (!number.is_int64() || number.get_int64() < 0)
        refuse_shard(path, "its DCP_SHARDING_INFO has no place for " + std::string(name));
      place.push_back(number.get_int64());
    }
  }
  return offsets;
}

}  // namespace

void add_foreign_shard(FileCalls& files, const std::string& folder, const std::string& name,
                       Manifest& manifest) {
  OpenFile file = OpenFile::open(files, path_in(folder, name));
  const std::uint64_t bytes = file.bytes();
  std::string beginning(std::min<std::uint64_t>(bytes, tensors::kSafetensorsLengthBytes), '\0');
  file.read_at(0, beginning.data(), beginning.size());
  const std::uint64_t length = tensors::safetensors_header_length(beginning, bytes, file.path());
  std::string text(length, '\0');
  file.read_at(beginning.size(), text.data(), text.size());
  const std::uint64_t header_bytes = beginning.size() + length;
  const tensors::SafetensorsHeader header =
      tensors::parse_safetensors_header(text, bytes - header_bytes, file.path());
  const std::map<std::string, Shape> offsets = offsets_in(header, file.path());
  for (const tensors::SafetensorsEntry& entry : header.entries) {
    SavedChunk chunk{{Shape(entry.shape.size(), 0), entry.shape},
                     manifest.files.size(),
                     header_bytes + entry.begin,
                     {}};
    const auto place = offsets.find(entry.name);
    if (place != offsets.end()) {
      if (place->second.size() != entry.shape.size())
        refuse_shard(file.path(), "\"" + entry.name + "\" has another number of dims than offsets");
      chunk.box.offsets = place->second;
    }
    manifest.tensors.push_back({entry.name, entry.dtype, entry.shape, {}, {}, {chunk}});
  }
  manifest.files.push_back({name, bytes, header_bytes, checksum(beginning + text)});
}

void finish_foreign(Manifest& manifest, const std::string& source) {
  std::vector<SavedTensor>& all = manifest.tensors;
  std::ranges::stable_sort(all, {}, &SavedTensor::name);
  std::vector<SavedTensor> joined;
  for (SavedTensor& one : all) {
    if (joined.empty() || joined.back().name != one.name) {
      joined.push_back(std::move(one));
    } else {
      if (joined.back().dtype != one.dtype || joined.back().shape.size() != one.shape.size())
        refuse_shard(source, "\"" + one.name + "\" differs from file to file");
      joined.back().chunks.push_back(std::move(one.chunks[0]));
    }
  }
  for (SavedTensor& tensor : joined) {
    for (const SavedChunk& chunk : tensor.chunks) {
      for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
        std::int64_t end = 0;
        if (__builtin_add_overflow(chunk.box.offsets[dim], chunk.box.shape[dim], &end))
          refuse_shard(source, "\"" + tensor.name + "\" is larger than any memory");
        tensor.shape[dim] = std::max(tensor.shape[dim], end);
      }
    }
    std::erase_if(tensor.chunks,
                  [](const SavedChunk& chunk) { return tensors::numel(chunk.box.shape) == 0; });
    if (tensor.bytes() > std::uint64_t{1} << 62)
      refuse_shard(source, "\"" + tensor.name + "\" is larger than any memory");
    std::vector<Box> boxes;
    for (const SavedChunk& chunk : tensor.chunks) boxes.push_back(chunk.box);
    const std::string fault = tiling_fault(tensor.shape, boxes);
    if (!fault.empty()) refuse_shard(source, "the parts of \"" + tensor.name + "\" " + fault);
  }
  all = std::move(joined);
}

namespace {

/// What is read of a folder.
struct ForeignFiles {
  std::vector<std::string> names;
  std::optional<SafetensorsIndex> index;
};

[[noreturn]] void refuse_choice(const std::string& folder, const std::string& a,
                                const std::string& b) {
  throw Error(ErrorCode::kInvalidArgument, folder + " has " + a + " and " + b,
              "they are different models, and neither says which one is meant",
              "a folder for each");
}

/// Whose names end so, and that are not the one.
std::vector<std::string> others(const std::vector<std::string>& names, std::string_view end,
                                std::string_view one) {
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found),
                       [&](const std::string& name) { return name.ends_with(end) && name != one; });
  return found;
}

/// Those that model.safetensors.index.json names; the folder may have the same tensors again in
/// others. An index of another name, such as that of a variant, must be the only one, and name all.
ForeignFiles foreign_files(FileCalls& files, const std::string& folder) {
  const std::vector<std::string> names = names_in(files, folder);
  const bool is_plain = std::ranges::binary_search(names, kIndexName);
  const std::vector<std::string> variants = others(names, kIndexEnd, kIndexName);
  if (!is_plain && variants.empty()) return {others(names, ".safetensors", ""), std::nullopt};
  if (!is_plain && variants.size() > 1) refuse_choice(folder, variants[0], variants[1]);
  const std::string name = is_plain ? std::string(kIndexName) : variants[0];
  const std::string path = path_in(folder, name);
  ForeignFiles chosen{{}, parse_index(whole_text(files, path, kMostManifestBytes), path)};
  std::set<std::string> named;
  for (const auto& [tensor, file] : chosen.index->files) named.insert(file);
  for (const std::string& file : others(names, ".safetensors", "")) {
    if (!named.contains(file) && (!is_plain || file == "model.safetensors"))
      refuse_choice(folder, name, file);
  }
  for (const std::string& file : named) {
    if (!std::ranges::binary_search(names, file))
      throw Error(ErrorCode::kNotFound, path_in(folder, file) + " is not there", name + " names it",
                  "all files of the model");
  }
  chosen.names.assign(named.begin(), named.end());
  return chosen;
}

/// Of a tensor that whole files have several times, such as one that two layers share, the one that
/// the index names.
void apply_index(const SafetensorsIndex& index, Manifest& manifest, const std::string& folder) {
  std::set<std::pair<std::string, std::string>> found;
  std::erase_if(manifest.tensors, [&](const SavedTensor& tensor) {
    const SavedChunk& chunk = tensor.chunks.at(0);
    const std::string& file = manifest.files[chunk.file].name;
    const auto place = index.files.find(tensor.name);
    if (place != index.files.end() && place->second == file) {
      found.emplace(tensor.name, file);
      return false;
    }
    const bool is_whole = std::ranges::all_of(chunk.box.offsets, [](auto at) { return at == 0; });
    return place != index.files.end() && is_whole;
  });
  for (const auto& place : index.files) {
    if (!found.contains(place))
      throw Error(ErrorCode::kProtocol,
                  path_in(folder, place.second) + " lacks \"" + place.first + "\"",
                  "the index says that it has it", "all files of one version of the model");
  }
}

[[noreturn]] void refuse_folder(FileCalls& files, const std::string& folder) {
  const std::string what = "there is no checkpoint " + folder;
  if (is_there(files, path_in(folder, ".metadata")))
    throw Error(ErrorCode::kNotFound, what,
                "its .metadata is Python's pickle, which names Python classes: dtrun loads none",
                "in Python, torch.distributed.checkpoint.load, and save with its "
                "HuggingFaceStorageWriter");
  const Series series(folder, {.files = &files});
  if (const auto steps = series.steps(); !steps.empty())
    throw Error(ErrorCode::kNotFound, what,
                "it is a series of " + std::to_string(steps.size()) + " checkpoints",
                "name one of them: " + series.path(steps.back()));
  throw Error(ErrorCode::kNotFound, what, "it has no manifest.json and no .safetensors file",
              "a folder that was saved to, or one with the .safetensors files of a model");
}

}  // namespace

Manifest read_foreign_folder(FileCalls& files, const std::string& folder) {
  Manifest manifest;
  if (is_folder(files, path_in(folder, "."))) {
    const ForeignFiles chosen = foreign_files(files, folder);
    for (const std::string& name : chosen.names) add_foreign_shard(files, folder, name, manifest);
    if (chosen.index) apply_index(*chosen.index, manifest, folder);
  }
  if (manifest.files.empty()) refuse_folder(files, folder);
  std::string sums;
  for (const SavedFile& file : manifest.files)
    sums += file.name + " " + std::to_string(file.header_checksum) + "\n";
  manifest.generation = checksum(sums);
  finish_foreign(manifest, folder);
  return manifest;
}

}  // namespace dtrun::dtensor::dcp
