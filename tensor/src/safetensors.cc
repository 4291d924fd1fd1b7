#include "dtrun/tensor/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/safetensors_header.h"
#include "whole_file.h"

namespace dtrun::tensors {

using base::Error;
using base::ErrorCode;

namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& path, std::string found) {
  throw Error(ErrorCode::kInvalidArgument, path.string() + " cannot be read as .safetensors",
              std::move(found), "the file as its writer made it, copied whole");
}

SafetensorsHeader read_file_header(const std::filesystem::path& path, std::istream& file,
                                   std::uint64_t size) {
  std::string beginning(kSafetensorsLengthBytes, '\0');
  if (!file.read(beginning.data(), static_cast<std::streamsize>(beginning.size())))
    beginning.clear();
  const std::uint64_t length = safetensors_header_length(beginning, size, path.string());
  std::string text(length, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length)))
    refuse_file(path, "it ends within its header");
  return parse_safetensors_header(text, size - beginning.size() - length, path.string());
}

}  // namespace

const LocalTensor& NamedTensors::at(const std::string& name) const {
  std::string names;
  for (const auto& [found, tensor] : tensors) {
    if (found == name) return tensor;
    names += (names.empty() ? "" : ", ") + found;
  }
  throw Error(ErrorCode::kNotFound, "no tensor \"" + name + "\"",
              names.empty() ? "there are none" : "there are " + names, "one of these names");
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& named) {
  std::vector<std::pair<std::string_view, LocalTensor>> sorted;
  std::set<std::string_view> names{"__metadata__"};
  for (const auto& [name, tensor] : named.tensors) {
    if (!names.insert(name).second)
      throw Error(ErrorCode::kInvalidArgument, "a second tensor \"" + name + "\"",
                  "a .safetensors file has each name once", "another name for one of them");
    sorted.emplace_back(name, tensor.to(kCpu).contiguous());
  }
  std::ranges::stable_sort(sorted, std::greater(),
                           [](const auto& one) { return item_size(one.second.dtype()); });
  SafetensorsHeader header{.entries = {}, .metadata = named.metadata};
  std::uint64_t at = 0;
  for (const auto& [name, tensor] : sorted) {
    header.entries.push_back(
        {std::string(name), tensor.dtype(), tensor.shape(), at, at + tensor.bytes()});
    at += tensor.bytes();
  }
  const std::string beginning = safetensors_beginning(header);
  std::vector<std::string_view> pieces{beginning};
  for (const auto& [name, tensor] : sorted) pieces.push_back(bytes_of(tensor));
  write_whole_file(path, pieces);
}

NamedTensors load_safetensors(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory)
    throw Error(ErrorCode::kNotFound, path.string() + " is not there", "no file has that name",
                "another path; save_safetensors() writes such files");
  std::ifstream file(path, std::ios::binary);
  if (error || !file)
    throw base::system_error("read " + path.string(), error ? error.value() : errno, "");
  NamedTensors named;
  const SafetensorsHeader header = read_file_header(path, file, size);
  named.metadata = header.metadata;
  for (const SafetensorsEntry& entry : header.entries) {
    const LocalTensor tensor = empty(entry.shape, {entry.dtype});
    if (!file.read(static_cast<char*>(tensor.data()), static_cast<std::streamsize>(tensor.bytes())))
      refuse_file(path, "it ended while it was read");
    named.tensors.emplace_back(entry.name, tensor);
  }
  return named;
}

}  // namespace dtrun::tensors
