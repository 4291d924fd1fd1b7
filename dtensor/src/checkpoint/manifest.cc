#include "dtrun/dtensor/checkpoint/manifest.h"

#include <fmt/core.h>
#include <fnmatch.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "checkpoint/block_sums.h"
#include "dtrun/base/check.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

namespace json = boost::json;

std::uint64_t checksum(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

BlockSums::BlockSums() : state_(XXH3_createState()) {
  DT_CHECK(state_ != nullptr);
  XXH3_64bits_reset(state_);
}

BlockSums::~BlockSums() {
  XXH3_freeState(state_);
}

void BlockSums::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), kBlockBytes - in_block_);
    XXH3_64bits_update(state_, bytes.data(), count);
    in_block_ += count;
    bytes.remove_prefix(count);
    if (in_block_ == kBlockBytes) end_block();
  }
}

void BlockSums::end_block() {
  sums_.push_back(XXH3_64bits_digest(state_));
  XXH3_64bits_reset(state_);
  in_block_ = 0;
}

std::vector<std::uint64_t> BlockSums::take() {
  if (in_block_ > 0) end_block();
  return std::exchange(sums_, {});
}

std::uint64_t blocks_of(std::uint64_t bytes) {
  return bytes / kBlockBytes + (bytes % kBlockBytes == 0 ? 0 : 1);
}

std::uint64_t SavedTensor::bytes() const {
  return tensors::bytes_of_shape(shape, dtype);
}

// A reader refuses tensors that are not in the order of their names.
const SavedTensor* Manifest::find(const std::string& name) const {
  const auto place = std::ranges::lower_bound(tensors, name, {}, &SavedTensor::name);
  return place != tensors.end() && place->name == name ? &*place : nullptr;
}

// A manifest may come from a stranger: no name may lead out of the checkpoint's folder, or write to
// a terminal.
bool is_file_name(std::string_view name) {
  return !name.empty() && name[0] != '.' && std::ranges::none_of(name, [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < ' ';
  });
}

bool is_chosen(const std::string& name, const std::vector<std::string>& patterns) {
  return patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
           return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
         });
}

std::string value_text(const Value& value) {
  if (const bool* const truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const std::int64_t* const number = std::get_if<std::int64_t>(&value))
    return std::to_string(*number);
  if (const double* const number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return json::serialize(json::string(std::get<std::string>(value)));
}

std::string exact_text(double number) {
  return fmt::format("{:a}", number);
}

// Not strtod(): the locale would say what stands for the point.
std::optional<double> exact_number(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  double number = 0;
  if (text == "inf") {
    number = std::numeric_limits<double>::infinity();
  } else if (text == "nan") {
    number = std::numeric_limits<double>::quiet_NaN();
  } else {
    // from_chars() knows no 0x, and would take a second sign.
    if (!text.starts_with("0x") || text.starts_with("0x-")) return std::nullopt;
    text.remove_prefix(2);
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::hex);
    if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  }
  return is_negative ? -number : number;
}

namespace {

std::string sum_text(std::uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

json::array numbers(const tensors::Shape& shape) {
  return json::array(shape.begin(), shape.end());
}

/// As C's %a, for JSON's numbers are decimal, and come back a bit beside.
json::value json_of(const Value& value) {
  if (const bool* const truth = std::get_if<bool>(&value)) return *truth;
  if (const std::int64_t* const number = std::get_if<std::int64_t>(&value)) return *number;
  if (const double* const number = std::get_if<double>(&value))
    return {{"double", exact_text(*number)}};
  return json::value(std::get<std::string>(value));
}

json::object json_of(const SavedTensor& tensor) {
  json::object line{{"name", tensor.name},
                    {"dtype", tensors::safetensors_dtype_name(tensor.dtype)},
                    {"shape", numbers(tensor.shape)}};
  if (!tensor.mesh_shape.empty()) {
    line["mesh"] = json::array(tensor.mesh_shape.begin(), tensor.mesh_shape.end());
    line["layout"] = tensor.layout;
  }
  json::array chunks;
  for (const SavedChunk& chunk : tensor.chunks) {
    json::array sums;
    for (const std::uint64_t sum : chunk.checksums) sums.push_back(json::value(sum_text(sum)));
    chunks.push_back({{"offsets", numbers(chunk.box.offsets)},
                      {"shape", numbers(chunk.box.shape)},
                      {"file", chunk.file},
                      {"begin", chunk.begin},
                      {"checksums", std::move(sums)}});
  }
  line["chunks"] = std::move(chunks);
  return line;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  json::object values, rank_values;
  for (const auto& [name, value] : manifest.values) values[name] = json_of(value);
  for (const auto& [name, list] : manifest.rank_values) {
    json::array& all = rank_values[name].emplace_array();
    for (const Value& value : list) all.push_back(json_of(value));
  }
  // By hand, for a line of each file and tensor: serialize() makes one line of all. The checksum is
  // of all that stands before it, so it comes last.
  std::string text = fmt::format(
      "{{\"format\":\"{}\",\"version\":{},\n\"generation\":\"{}\",\"ranks\":{},\"block_bytes\":{},"
      "\n"
      "\"values\":{},\n\"rank_values\":{},\n\"files\":[",
      kFormatName, kFormatVersion, sum_text(manifest.generation), manifest.ranks, kBlockBytes,
      json::serialize(values), json::serialize(rank_values));
  const char* before = "\n";
  for (const SavedFile& file : manifest.files) {
    text +=
        before + json::serialize(json::object{{"name", file.name},
                                              {"bytes", file.bytes},
                                              {"header_bytes", file.header_bytes},
                                              {"header_checksum", sum_text(file.header_checksum)}});
    before = ",\n";
  }
  text += "],\n\"tensors\":[";
  before = "\n";
  for (const SavedTensor& tensor : manifest.tensors) {
    text += before + json::serialize(json_of(tensor));
    before = ",\n";
  }
  text += "]";
  return text + fmt::format(",\n\"checksum\":\"{}\"}}\n", sum_text(checksum(text)));
}

}  // namespace dtrun::dtensor::dcp
