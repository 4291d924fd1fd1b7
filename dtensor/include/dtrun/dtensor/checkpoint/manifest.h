// Manifest: what a checkpoint says of itself in manifest.json, the file that is written last. The
// format's one place (docs/checkpoint_format.md). A value; reading and writing it are pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor::dcp {

inline constexpr std::string_view kFormatName = "dtrun-checkpoint";
inline constexpr int kFormatVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";
/// A chunk's bytes are summed in blocks of that many; the last one may be smaller.
inline constexpr std::uint64_t kBlockBytes = 1 << 20;
/// A larger manifest is refused before it is read.
inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 30;

/// xxHash's XXH3_64bits.
std::uint64_t checksum(std::string_view bytes);
std::uint64_t blocks_of(std::uint64_t bytes);

/// A small value beside the tensors: a step, a rate, a text. Numbers come back bit by bit.
using Value = std::variant<bool, std::int64_t, double, std::string>;
using Values = std::map<std::string, Value>;
/// "12", "true", "\"text\"".
std::string value_text(const Value& value);

struct SavedFile {
  std::string name;  ///< in the folder of the manifest
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;  ///< of the .safetensors header and its length
  std::uint64_t header_checksum = 0;
};

/// A box of a tensor: its elements stand row-major in one file.
struct SavedChunk {
  Box box;
  std::size_t file = 0;     ///< of Manifest::files
  std::uint64_t begin = 0;  ///< of its bytes, counted from the file's beginning
  std::vector<std::uint64_t> checksums;
};

struct SavedTensor {
  std::string name;
  tensors::DType dtype = tensors::DType::f32;
  tensors::Shape shape;
  /// How it lay when it was saved; empty: on no mesh.
  std::vector<int> mesh_shape = {};
  std::string layout = {};  ///< "[S(0), R]"
  std::vector<SavedChunk> chunks = {};

  std::uint64_t bytes() const;
};

struct Manifest {
  std::uint64_t generation = 0;  ///< a number that no other save has; the files name it, too
  int ranks = 1;                 ///< that saved
  std::vector<SavedFile> files = {};
  std::vector<SavedTensor> tensors = {};  ///< by name
  Values values = {};
  std::map<std::string, std::vector<Value>> rank_values = {};  ///< one per rank

  /// Null: there is none.
  const SavedTensor* find(const std::string& name) const;
};

/// Whether it is the name of a file in a folder: not hidden, and no path that leads elsewhere.
bool is_file_name(std::string_view name);
/// Whether one of the patterns, with * and ?, fits the name; without patterns any name does.
bool is_chosen(const std::string& name, const std::vector<std::string>& patterns);

/// As C's %a, whatever the locale is: "-0x1.8p+1", "nan".
std::string exact_text(double number);
/// None: it is no such text.
std::optional<double> exact_number(std::string_view text);

/// The file's text. Its last line is a checksum of all that stands before.
std::string manifest_text(const Manifest& manifest);
/// @param source for messages: the file's path
/// @throws Error kProtocol for a text that is damaged, or of another format; a file's name that
/// leaves the folder; chunks that overlap, leave holes or lie outside of their file
Manifest parse_manifest(std::string_view text, const std::string& source);

}  // namespace dtrun::dtensor::dcp
