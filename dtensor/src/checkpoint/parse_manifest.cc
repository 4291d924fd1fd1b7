// Reading a manifest, whoever has written it.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_json.h"
#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/checkpoint/plan.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::Shape;
namespace json = boost::json;

namespace {

/// More ranks and axes than any machine has: numbers beyond are damage.
constexpr std::int64_t kMostRanks = 1 << 24;

/// With its length; as the reader of .safetensors files has it.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000 + tensors::kSafetensorsLengthBytes;

/// Looks at the members of a manifest, and says which one is wrong.
class ManifestReader {
 public:
  explicit ManifestReader(std::string source) : source_(std::move(source)) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kProtocol, source_ + " is no manifest of a checkpoint", why,
                "another checkpoint; dtrun-ckpt verify looks at all of one");
  }

  const json::value& member(const json::object& object, std::string_view name) const {
    const json::value* const found = object.if_contains(name);
    if (found == nullptr) refuse(fmt::format("\"{}\" is missing", name));
    return *found;
  }
  const json::object& object(const json::value& value, std::string_view what) const {
    if (!value.is_object()) refuse(fmt::format("{} is no object", what));
    return value.get_object();
  }
  const json::array& list(const json::object& of, std::string_view name) const {
    const json::value& value = member(of, name);
    if (!value.is_array()) refuse(fmt::format("\"{}\" is no list", name));
    return value.get_array();
  }
  std::string text(const json::object& of, std::string_view name) const {
    const json::value& value = member(of, name);
    if (!value.is_string()) refuse(fmt::format("\"{}\" is no text", name));
    return std::string(value.get_string());
  }
  std::int64_t number(const json::value& value, std::string_view name) const {
    if (!value.is_int64() || value.get_int64() < 0)
      refuse(fmt::format("\"{}\" is {}", name, json::serialize(value)));
    return value.get_int64();
  }
  std::uint64_t bytes(const json::object& of, std::string_view name) const {
    return static_cast<std::uint64_t>(number(member(of, name), name));
  }
  std::uint64_t sum(const json::value& value, std::string_view name) const {
    std::uint64_t read = 0;
    if (value.is_string() && value.get_string().size() == 16) {
      const json::string& text = value.get_string();
      const auto [end, error] = std::from_chars(text.begin(), text.end(), read, 16);
      if (error == std::errc() && end == text.end()) return read;
    }
    refuse(fmt::format("\"{}\" has {}", name, json::serialize(value)));
  }
  Shape shape(const json::object& of, std::string_view name) const {
    Shape sizes;
    for (const json::value& size : list(of, name)) sizes.push_back(number(size, name));
    return sizes;
  }
  Value value(const json::value& value, const std::string& name) const {
    if (value.is_bool()) return value.get_bool();
    if (value.is_int64()) return value.get_int64();
    if (value.is_string()) return std::string(value.get_string());
    if (value.is_object() && value.get_object().size() == 1) {
      const std::string text = this->text(value.get_object(), "double");
      if (const std::optional<double> read = exact_number(text)) return *read;
    }
    refuse(fmt::format("the value \"{}\" is {}", name, json::serialize(value)));
  }
  SavedFile file(const json::value& value) const {
    const json::object& line = object(value, "a file");
    SavedFile file{text(line, "name"), bytes(line, "bytes"), bytes(line, "header_bytes"),
                   sum(member(line, "header_checksum"), "header_checksum")};
    if (!is_file_name(file.name))
      refuse(fmt::format("the file {} is not in its folder",
                         json::serialize(json::string(file.name))));
    if (file.header_bytes < tensors::kSafetensorsLengthBytes || file.header_bytes > file.bytes)
      refuse("the header of " + file.name + " is larger than the file");
    if (file.header_bytes > kMostHeaderBytes)
      refuse("the header of " + file.name + " is too large");
    return file;
  }
  SavedTensor tensor(const json::value& value, const std::vector<SavedFile>& files) const;

 private:
  SavedChunk chunk(const json::value& value, const SavedTensor& tensor,
                   const std::vector<SavedFile>& files) const;

  const std::string source_;
};

tensors::DType dtype_named(const std::string& name, const ManifestReader& reader) {
  if (const auto dtype = tensors::safetensors_dtype(name)) return *dtype;
  reader.refuse("there is no dtype \"" + name + "\"");
}

SavedChunk ManifestReader::chunk(const json::value& value, const SavedTensor& tensor,
                                 const std::vector<SavedFile>& files) const {
  const json::object& line = object(value, "a chunk");
  SavedChunk chunk;
  chunk.box = {shape(line, "offsets"), shape(line, "shape")};
  chunk.file = bytes(line, "file");
  chunk.begin = bytes(line, "begin");
  for (const json::value& one : list(line, "checksums"))
    chunk.checksums.push_back(sum(one, "checksums"));
  if (chunk.box.shape.size() != tensor.shape.size() ||
      chunk.box.offsets.size() != tensor.shape.size())
    refuse("a chunk of \"" + tensor.name + "\" has another number of dims");
  if (chunk.file >= files.size()) refuse("a chunk of \"" + tensor.name + "\" is in no file");
  const SavedFile& file = files[chunk.file];
  const std::uint64_t size = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
  if (chunk.begin < file.header_bytes || chunk.begin > file.bytes ||
      size > file.bytes - chunk.begin)
    refuse(fmt::format("a chunk of \"{}\" is not within {}", tensor.name, file.name));
  if (chunk.checksums.size() != blocks_of(size))
    refuse(fmt::format("a chunk of \"{}\" has {} checksums, not {}", tensor.name,
                       chunk.checksums.size(), blocks_of(size)));
  return chunk;
}

SavedTensor ManifestReader::tensor(const json::value& value,
                                   const std::vector<SavedFile>& files) const {
  const json::object& line = object(value, "a tensor");
  SavedTensor tensor;
  tensor.name = text(line, "name");
  tensor.dtype = dtype_named(text(line, "dtype"), *this);
  tensor.shape = shape(line, "shape");
  if (tensor.bytes() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    refuse("\"" + tensor.name + "\" is larger than any memory");
  if (line.contains("mesh")) {
    for (const std::int64_t size : shape(line, "mesh")) {
      if (size < 1 || size > kMostRanks) refuse("\"" + tensor.name + "\" has no such mesh");
      tensor.mesh_shape.push_back(static_cast<int>(size));
    }
    tensor.layout = text(line, "layout");
  }
  std::vector<Box> boxes;
  for (const json::value& one : list(line, "chunks")) {
    tensor.chunks.push_back(chunk(one, tensor, files));
    boxes.push_back(tensor.chunks.back().box);
  }
  const std::string fault = tiling_fault(tensor.shape, boxes);
  if (!fault.empty()) refuse("the chunks of \"" + tensor.name + "\" " + fault);
  return tensor;
}

/// Bytes of a file are of one chunk at most.
void check_apart(const Manifest& manifest, const ManifestReader& reader) {
  struct Stretch {
    std::size_t file;
    std::uint64_t begin, end;
    auto operator<=>(const Stretch&) const = default;
  };
  std::vector<Stretch> stretches;
  for (const SavedTensor& tensor : manifest.tensors) {
    for (const SavedChunk& chunk : tensor.chunks)
      stretches.push_back({chunk.file, chunk.begin,
                           chunk.begin + tensors::bytes_of_shape(chunk.box.shape, tensor.dtype)});
  }
  std::ranges::sort(stretches);
  for (std::size_t i = 1; i < stretches.size(); ++i) {
    if (stretches[i].file == stretches[i - 1].file && stretches[i].begin < stretches[i - 1].end)
      reader.refuse("two chunks share bytes of " + manifest.files[stretches[i].file].name);
  }
}

/// ,\n"checksum":"0123456789abcdef"}\n
constexpr std::size_t kChecksumLine = 33;

void check_checksum(std::string_view text, const ManifestReader& reader) {
  if (text.size() < kChecksumLine)
    reader.refuse("it has " + std::to_string(text.size()) + " bytes");
  const std::string_view before = text.substr(0, text.size() - kChecksumLine);
  const std::string line = fmt::format(",\n\"checksum\":\"{:016x}\"}}\n", checksum(before));
  if (text.substr(before.size()) != line)
    reader.refuse("its last line is not the checksum of what stands before");
}

void read_values(const json::object& root, const ManifestReader& reader, Manifest& manifest) {
  for (const auto& [name, value] : reader.object(reader.member(root, "values"), "\"values\""))
    manifest.values[std::string(name)] = reader.value(value, std::string(name));
  for (const auto& [name, list] :
       reader.object(reader.member(root, "rank_values"), "\"rank_values\"")) {
    if (!list.is_array() || list.get_array().size() != static_cast<std::size_t>(manifest.ranks))
      reader.refuse(fmt::format("\"{}\" is not one value per rank", std::string(name)));
    for (const json::value& value : list.get_array())
      manifest.rank_values[std::string(name)].push_back(reader.value(value, std::string(name)));
  }
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& source) {
  const ManifestReader reader(source);
  // First: what is parsed after it may be malicious, but is not damaged.
  check_checksum(text, reader);
  const json::value parsed = base::parse_unique_json(text, source);
  const json::object& root = reader.object(parsed, "it");
  if (reader.text(root, "format") != kFormatName)
    reader.refuse("its format is \"" + reader.text(root, "format") + "\"");
  const std::int64_t version = reader.number(reader.member(root, "version"), "version");
  if (version != kFormatVersion)
    reader.refuse(
        fmt::format("it is of version {}, and this dtrun reads {}", version, kFormatVersion));
  if (reader.bytes(root, "block_bytes") != kBlockBytes)
    reader.refuse("its checksums are of blocks of another size");
  Manifest manifest;
  manifest.generation = reader.sum(reader.member(root, "generation"), "generation");
  const std::int64_t ranks = reader.number(reader.member(root, "ranks"), "ranks");
  if (ranks < 1 || ranks > kMostRanks) reader.refuse(fmt::format("{} ranks saved it", ranks));
  manifest.ranks = static_cast<int>(ranks);
  read_values(root, reader, manifest);
  std::set<std::string> file_names{std::string(kManifestName)};
  for (const json::value& one : reader.list(root, "files")) {
    manifest.files.push_back(reader.file(one));
    if (!file_names.insert(manifest.files.back().name).second)
      reader.refuse("the file " + manifest.files.back().name + " stands twice");
  }
  for (const json::value& one : reader.list(root, "tensors")) {
    manifest.tensors.push_back(reader.tensor(one, manifest.files));
    const auto& all = manifest.tensors;
    if (all.size() > 1 && all[all.size() - 2].name >= all.back().name)
      reader.refuse("its tensors are not in the order of their names");
  }
  check_apart(manifest, reader);
  return manifest;
}

}  // namespace dtrun::dtensor::dcp
