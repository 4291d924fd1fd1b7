// The manifest of a folder.
#pragma once

#include <string>

#include "checkpoint/open_file.h"
#include "dtrun/dtensor/checkpoint/manifest.h"

namespace dtrun::dtensor::dcp {

/// @throws Error kNotFound for a folder without one; kProtocol, kSystem
Manifest read_manifest(FileCalls& files, const std::string& folder);

}  // namespace dtrun::dtensor::dcp
