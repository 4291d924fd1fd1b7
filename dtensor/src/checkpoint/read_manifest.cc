#include "checkpoint/read_manifest.h"

#include "dtrun/base/error.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;

Manifest read_manifest(FileCalls& files, const std::string& folder) {
  const std::string path = path_in(folder, std::string(kManifestName));
  if (!is_there(files, path))
    throw Error(ErrorCode::kNotFound, "there is no checkpoint " + folder,
                "it has no " + std::string(kManifestName), "");
  OpenFile file = OpenFile::open(files, path);
  const std::uint64_t bytes = file.bytes();
  if (bytes > kMostManifestBytes)
    throw Error(ErrorCode::kProtocol, path + " has " + std::to_string(bytes) + " bytes",
                "no manifest is so large");
  std::string text(bytes, '\0');
  file.read_at(0, text.data(), text.size());
  return parse_manifest(text, path);
}

}  // namespace dtrun::dtensor::dcp
