#include "dtrun/tensor/safetensors_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <limits>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_json.h"

namespace dtrun::tensors {
namespace {

// The format is little-endian, and bytes are read and written as they lie in memory.
static_assert(std::endian::native == std::endian::little);

using base::Error;
using base::ErrorCode;
namespace json = boost::json;

constexpr std::string_view kMetadata = "__metadata__";
/// Of the header: the reference's own bound.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

struct FileType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<FileType, kDTypes> kFileTypes = {{{"F64", DType::f64},
                                                       {"F32", DType::f32},
                                                       {"F16", DType::f16},
                                                       {"BF16", DType::bf16},
                                                       {"I64", DType::i64},
                                                       {"I32", DType::i32},
                                                       {"I16", DType::i16},
                                                       {"I8", DType::i8},
                                                       {"U8", DType::u8},
                                                       {"BOOL", DType::boolean}}};

[[noreturn]] void refuse_header(const std::string& file, std::string found) {
  throw Error(ErrorCode::kInvalidArgument, file + " cannot be read as .safetensors",
              std::move(found), "the file as its writer made it, copied whole");
}

SafetensorsEntry entry_of(const std::string& file, const std::string& name,
                          const json::value& value) {
  const auto field = [&](const char* key) -> const json::value& {
    const json::value* const found =
        value.is_object() ? value.get_object().if_contains(key) : nullptr;
    if (found == nullptr) refuse_header(file, fmt::format("\"{}\" has no {}", name, key));
    return *found;
  };
  const auto numbers = [&](const char* key) {
    std::vector<std::uint64_t> values;
    const json::value& list = field(key);
    if (!list.is_array()) refuse_header(file, fmt::format("\"{}\": its {} is no list", name, key));
    for (const json::value& one : list.get_array()) {
      if (!one.is_int64() || one.get_int64() < 0)
        refuse_header(file, fmt::format("\"{}\": its {} has {}", name, key, json::serialize(one)));
      values.push_back(static_cast<std::uint64_t>(one.get_int64()));
    }
    return values;
  };
  const json::value& type = field("dtype");
  const std::optional<DType> dtype =
      type.is_string() ? safetensors_dtype(type.get_string()) : std::nullopt;
  if (!dtype)
    refuse_header(file, fmt::format("\"{}\" has elements of {}, which dtrun does not know", name,
                                    json::serialize(type)));
  Shape shape;
  for (const std::uint64_t size : numbers("shape"))
    shape.push_back(static_cast<std::int64_t>(size));
  const std::vector<std::uint64_t> offsets = numbers("data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1] ||
      offsets[1] - offsets[0] != bytes_of_shape(shape, *dtype)) {
    refuse_header(file, fmt::format("\"{}\": {} of shape {} do not take the bytes {}", name,
                                    safetensors_dtype_name(*dtype), shape_to_string(shape),
                                    json::serialize(field("data_offsets"))));
  }
  return {name, *dtype, shape, offsets[0], offsets[1]};
}

/// In the order of their bytes, which are all that follow the header.
std::vector<SafetensorsEntry> entries_of(const std::string& file, const json::object& header,
                                         std::uint64_t bytes,
                                         std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [key, value] : header) {
    if (key != kMetadata) {
      entries.push_back(entry_of(file, std::string(key), value));
      continue;
    }
    if (!value.is_object()) refuse_header(file, "its __metadata__ is no object");
    for (const auto& [name, text] : value.get_object()) {
      if (!text.is_string()) refuse_header(file, "its __metadata__ holds more than texts");
      metadata[std::string(name)] = std::string(text.get_string());
    }
  }
  // Empty tensors take no bytes, so several may begin at one place. By begin and end they come
  // before the tensor that fills it.
  std::ranges::stable_sort(entries, {},
                           [](const SafetensorsEntry& e) { return std::pair(e.begin, e.end); });
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != at)
      refuse_header(file, fmt::format("\"{}\" begins at byte {}, where {} was due", entry.name,
                                      entry.begin, at));
    at = entry.end;
  }
  if (at != bytes)
    refuse_header(file,
                  fmt::format("its tensors take {} bytes, and {} follow its header", at, bytes));
  return entries;
}

}  // namespace

std::string_view safetensors_dtype_name(DType dtype) {
  return std::ranges::find(kFileTypes, dtype, &FileType::dtype)->name;
}

std::optional<DType> safetensors_dtype(std::string_view name) {
  const auto known = std::ranges::find(kFileTypes, name, &FileType::name);
  return known == kFileTypes.end() ? std::nullopt : std::optional(known->dtype);
}

std::uint64_t bytes_of_shape(const Shape& shape, DType dtype) {
  std::uint64_t bytes = item_size(dtype);
  for (const std::int64_t size : shape) {
    // No file has so many bytes, so whoever compares refuses the shape.
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes))
      return std::numeric_limits<std::uint64_t>::max();
  }
  return bytes;
}

std::string safetensors_beginning(const SafetensorsHeader& header) {
  json::object lines;
  if (!header.metadata.empty()) {
    json::object& texts = lines[kMetadata].emplace_object();
    for (const auto& [name, text] : header.metadata) texts[name] = text;
  }
  for (const SafetensorsEntry& entry : header.entries) {
    lines[entry.name] = {{"dtype", safetensors_dtype_name(entry.dtype)},
                         {"shape", json::array(entry.shape.begin(), entry.shape.end())},
                         {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = json::serialize(lines);
  // Then the tensors begin at a multiple of 8, as the reference's own files have it.
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

std::uint64_t safetensors_header_length(std::string_view beginning, std::uint64_t file_bytes,
                                        const std::string& file) {
  std::uint64_t length = 0;
  if (beginning.size() >= sizeof(length)) std::memcpy(&length, beginning.data(), sizeof(length));
  if (beginning.size() < sizeof(length) || length > kMostHeaderBytes ||
      length > file_bytes - sizeof(length))
    refuse_header(file, "it does not begin with the length of its header");
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& file) {
  const json::value header = base::parse_unique_json(text, file);
  if (!header.is_object() || !text.starts_with('{'))
    refuse_header(file, "its header is no JSON object");
  SafetensorsHeader read;
  read.entries = entries_of(file, header.get_object(), data_bytes, read.metadata);
  return read;
}

}  // namespace dtrun::tensors
