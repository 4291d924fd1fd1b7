// Foreign shards: .safetensors files that others have written, as part of a Manifest without
// checksums. Pure but for the headers that are read.
#pragma once

#include <string>

#include "checkpoint/open_file.h"
#include "dtrun/dtensor/checkpoint/manifest.h"

namespace dtrun::dtensor::dcp {

/// Adds a file's tensors: whole ones, or the boxes that its metadata tells
/// (torch.distributed.checkpoint's DCP_SHARDING_INFO). @throws Error kInvalidArgument, kProtocol
void add_foreign_shard(FileCalls& files, const std::string& folder, const std::string& name,
                       Manifest& manifest);
/// When all are added: sorts them, finds the shapes of those that are in several boxes, and checks
/// that nothing is missing. @throws Error kProtocol
void finish_foreign(Manifest& manifest, const std::string& source);

/// Of a folder, those that its index names; without one, all.
/// @throws Error kNotFound for one without such files; kInvalidArgument where it has two models
Manifest read_foreign_folder(FileCalls& files, const std::string& folder);

}  // namespace dtrun::dtensor::dcp
