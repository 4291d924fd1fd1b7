// make_backend: the one place where a backend's name becomes a backend.
#pragma once

#include <memory>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/process_group.h"

namespace dtrun::collectives {

/// Collective over the members. @throws Error kInvalidArgument for an unknown name, kUnavailable
/// for one that is not built in, both with the list of those that are; or why joining failed
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

/// "cpu, nccl".
std::string built_backends();

// Where each backend begins. nccl's lives in nccl/ or in no_nccl/, whichever is built.
bool nccl_is_built();
std::unique_ptr<Backend> make_nccl_backend(const GroupOptions& options);

}  // namespace dtrun::collectives
