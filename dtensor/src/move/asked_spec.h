// asked_spec: the spec of a layout that the user's program asked for.
#pragma once

#include <string_view>

#include "dtrun/base/call_site.h"
#include "dtrun/dtensor/mesh/spec.h"

namespace dtrun::dtensor {

/// As make_spec. @throws Error that names the call and where it stands: "redistribute at
/// train.cc:12"
Spec asked_spec(std::string_view call, const base::CallSite& site, const DeviceMesh& mesh,
                const Placements& placements, const tensors::Shape& shape, tensors::DType dtype,
                const ShardOrder& order);

}  // namespace dtrun::dtensor
