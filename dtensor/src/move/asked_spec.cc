#include "move/asked_spec.h"

#include <string>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

Spec asked_spec(std::string_view call, const base::CallSite& site, const DeviceMesh& mesh,
                const Placements& placements, const tensors::Shape& shape, tensors::DType dtype,
                const ShardOrder& order) {
  try {
    return make_spec(mesh, placements, shape, dtype, order);
  } catch (const base::Error& error) {
    const std::string_view file = site.file_name();
    const std::string place = std::string(call) + " at " +
                              std::string(file.substr(file.rfind('/') + 1)) + ":" +
                              std::to_string(site.line()) + " asked for " +
                              placements_to_string(placements) + " on " + mesh.to_string();
    throw base::Error(error.code(), error.summary(),
                      error.why().empty() ? place : error.why() + "; " + place, error.remedy());
  }
}

}  // namespace dtrun::dtensor
