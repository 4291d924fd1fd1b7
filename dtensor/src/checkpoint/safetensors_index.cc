#include "checkpoint/safetensors_index.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_json.h"
#include "dtrun/dtensor/checkpoint/manifest.h"

namespace dtrun::dtensor::dcp {

namespace json = boost::json;

namespace {

constexpr const char* kMap = "weight_map";

[[noreturn]] void refuse_index(const std::string& source, const std::string& why) {
  throw base::Error(base::ErrorCode::kProtocol, source + " is no index of .safetensors files", why,
                    "the file as its author has it, or none: then all .safetensors files are read");
}

}  // namespace

std::string index_text(const SafetensorsIndex& index, std::uint64_t bytes) {
  json::object map;
  for (const auto& [name, file] : index.files) map[name] = file;
  return json::serialize(
      json::object{{"metadata", {{"total_size", bytes}}}, {kMap, std::move(map)}});
}

SafetensorsIndex parse_index(std::string_view text, const std::string& source) {
  const json::value parsed = base::parse_unique_json(text, source);
  const json::value* const map =
      parsed.is_object() ? parsed.get_object().if_contains(kMap) : nullptr;
  if (map == nullptr || !map->is_object()) refuse_index(source, "it has no weight_map");
  SafetensorsIndex index;
  for (const auto& [name, file] : map->get_object()) {
    const bool is_file = file.is_string() && is_file_name(std::string(file.get_string())) &&
                         file.get_string().ends_with(".safetensors");
    if (!is_file)
      refuse_index(source, "\"" + std::string(name) + "\" is in " + json::serialize(file) +
                               ", which is no .safetensors file of its folder");
    index.files[std::string(name)] = std::string(file.get_string());
  }
  if (index.files.empty()) refuse_index(source, "it names no tensor");
  return index;
}

}  // namespace dtrun::dtensor::dcp
