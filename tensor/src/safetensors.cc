#include "dtrun/tensor/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "dtrun/tensor/ops.h"
#include "whole_file.h"

namespace dtrun::tensors {
namespace {

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
constexpr std::array<FileType, 8> kFileTypes = {{{"F64", DType::f64},
                                                 {"F32", DType::f32},
                                                 {"F16", DType::f16},
                                                 {"BF16", DType::bf16},
                                                 {"I64", DType::i64},
                                                 {"I32", DType::i32},
                                                 {"U8", DType::u8},
                                                 {"BOOL", DType::boolean}}};

std::string_view type_name(DType dtype) {
  return std::ranges::find(kFileTypes, dtype, &FileType::dtype)->name;
}

[[noreturn]] void refuse_file(const std::filesystem::path& path, std::string found) {
  throw Error(ErrorCode::kInvalidArgument, path.string() + " cannot be read as .safetensors",
              std::move(found));
}

/// A header's line on one tensor.
struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin;
  std::uint64_t end;
};

/// Bytes of a tensor; a shape that no memory holds gives the largest number.
std::uint64_t bytes_of_shape(const Shape& shape, DType dtype) {
  std::uint64_t bytes = item_size(dtype);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes))
      return std::numeric_limits<std::uint64_t>::max();
  }
  return bytes;
}

Entry entry_of(const std::filesystem::path& path, const std::string& name,
               const json::value& value) {
  const auto field = [&](const char* key) -> const json::value& {
    const json::value* const found =
        value.is_object() ? value.get_object().if_contains(key) : nullptr;
    if (found == nullptr) refuse_file(path, fmt::format("\"{}\" has no {}", name, key));
    return *found;
  };
  const auto numbers = [&](const char* key) {
    std::vector<std::uint64_t> values;
    const json::value& list = field(key);
    if (!list.is_array()) refuse_file(path, fmt::format("\"{}\": its {} is no list", name, key));
    for (const json::value& one : list.get_array()) {
      if (!one.is_int64() || one.get_int64() < 0)
        refuse_file(path, fmt::format("\"{}\": its {} has {}", name, key, json::serialize(one)));
      values.push_back(static_cast<std::uint64_t>(one.get_int64()));
    }
    return values;
  };
  const json::value& type = field("dtype");
  const auto known =
      type.is_string()
          ? std::ranges::find(kFileTypes, std::string_view(type.get_string()), &FileType::name)
          : kFileTypes.end();
  if (known == kFileTypes.end())
    refuse_file(path, fmt::format("\"{}\" has elements of {}, which dtrun does not know", name,
                                  json::serialize(type)));
  Shape shape;
  for (const std::uint64_t size : numbers("shape"))
    shape.push_back(static_cast<std::int64_t>(size));
  const std::vector<std::uint64_t> offsets = numbers("data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1] ||
      offsets[1] - offsets[0] != bytes_of_shape(shape, known->dtype)) {
    refuse_file(path,
                fmt::format("\"{}\": {} of shape {} do not take the bytes {}", name, known->name,
                            shape_to_string(shape), json::serialize(field("data_offsets"))));
  }
  return {name, known->dtype, shape, offsets[0], offsets[1]};
}

/// In the order of their bytes, which are all that follow the header.
std::vector<Entry> entries_of(const std::filesystem::path& path, const json::object& header,
                              std::uint64_t bytes, std::map<std::string, std::string>& metadata) {
  std::vector<Entry> entries;
  for (const auto& [key, value] : header) {
    if (key != kMetadata) {
      entries.push_back(entry_of(path, std::string(key), value));
      continue;
    }
    if (!value.is_object()) refuse_file(path, "its __metadata__ is no object");
    for (const auto& [name, text] : value.get_object()) {
      if (!text.is_string()) refuse_file(path, "its __metadata__ holds more than texts");
      metadata[std::string(name)] = std::string(text.get_string());
    }
  }
  std::ranges::stable_sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at)
      refuse_file(path, fmt::format("\"{}\" begins at byte {}, where {} was due", entry.name,
                                    entry.begin, at));
    at = entry.end;
  }
  if (at != bytes)
    refuse_file(path,
                fmt::format("its tensors take {} bytes, and {} follow its header", at, bytes));
  return entries;
}

json::object read_file_header(const std::filesystem::path& path, std::istream& file,
                              std::uint64_t size) {
  std::uint64_t length = 0;
  if (!file.read(reinterpret_cast<char*>(&length), sizeof(length)) || length > kMostHeaderBytes ||
      length > size - sizeof(length))
    refuse_file(path, "it does not begin with the length of its header");
  std::string text(length, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length)))
    refuse_file(path, "it ends within its header");
  const json::value header = base::parse_json(text, path.string());
  if (!header.is_object()) refuse_file(path, "its header is no JSON object");
  return header.get_object();
}

}  // namespace

const LocalTensor& NamedTensors::at(const std::string& name) const {
  std::string names;
  for (const auto& [found, tensor] : tensors) {
    if (found == name) return tensor;
    names += (names.empty() ? "" : ", ") + found;
  }
  throw Error(ErrorCode::kNotFound, "no tensor \"" + name + "\"", "there are " + names);
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& named) {
  std::vector<std::pair<std::string_view, LocalTensor>> sorted;
  std::set<std::string_view> names{kMetadata};
  for (const auto& [name, tensor] : named.tensors) {
    if (!names.insert(name).second)
      throw Error(ErrorCode::kInvalidArgument, "a second tensor \"" + name + "\"",
                  "a .safetensors file has each name once");
    sorted.emplace_back(name, tensor.to(kCpu).contiguous());
  }
  std::ranges::stable_sort(sorted, std::greater(),
                           [](const auto& one) { return item_size(one.second.dtype()); });
  json::object header;
  if (!named.metadata.empty()) {
    json::object& texts = header[kMetadata].emplace_object();
    for (const auto& [name, text] : named.metadata) texts[name] = text;
  }
  std::uint64_t at = 0;
  for (const auto& [name, tensor] : sorted) {
    const Shape& shape = tensor.shape();
    header[name] = {{"dtype", type_name(tensor.dtype())},
                    {"shape", json::array(shape.begin(), shape.end())},
                    {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text = json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  std::vector<std::string_view> pieces{{reinterpret_cast<const char*>(&length), sizeof(length)},
                                       text};
  for (const auto& [name, tensor] : sorted) pieces.push_back(bytes_of(tensor));
  write_whole_file(path, pieces);
}

NamedTensors load_safetensors(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory)
    throw Error(ErrorCode::kNotFound, path.string() + " is not there");
  std::ifstream file(path, std::ios::binary);
  if (error || !file)
    throw base::system_error("read " + path.string(), error ? error.value() : errno, "");
  NamedTensors named;
  const json::object header = read_file_header(path, file, size);
  const auto begin = static_cast<std::uint64_t>(file.tellg());
  for (const Entry& entry : entries_of(path, header, size - begin, named.metadata)) {
    const LocalTensor tensor = empty(entry.shape, {entry.dtype});
    if (!file.read(static_cast<char*>(tensor.data()), static_cast<std::streamsize>(tensor.bytes())))
      refuse_file(path, "it ended while it was read");
    named.tensors.emplace_back(entry.name, tensor);
  }
  return named;
}

}  // namespace dtrun::tensors
