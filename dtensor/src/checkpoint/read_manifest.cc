#include "checkpoint/read_manifest.h"

#include "dtrun/base/error.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;

Manifest read_manifest(FileCalls& files, const std::string& folder) {
  const std::string path = path_in(folder, std::string(kManifestName));
  if (!is_there(files, path))
    throw Error(ErrorCode::kNotFound, "there is no checkpoint " + folder,
                "it has no " + std::string(kManifestName),
                "the folder of a finished save; a save that was killed has none");
  return parse_manifest(whole_text(files, path, kMostManifestBytes), path);
}

}  // namespace dtrun::dtensor::dcp
