// The gloo module: libdtrun-gloo.so, which holds GlooLibrary and is linked with libgloo. A program
// opens it with its first group over backend gloo, so that all others start without libgloo. The
// module carries its own copy of what it uses of dtrun: no state of the process may be kept there.
#pragma once

#include <string>
#include <vector>

#include "adapter/message_library.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives::gloo_backend {

/// Collective over the members. @throws Error. The caller owns the result.
using MakeGlooLibrary = adapter::MessageLibrary* (*)(const GroupOptions& options,
                                                     base::Deadline deadline);

/// The function of a module, the first of these that the loader finds. Its name is a hash of the
/// headers that the two share: a module of another version is not taken. @throws Error kUnavailable
MakeGlooLibrary open_gloo_module(const std::vector<std::string>& files);

}  // namespace dtrun::collectives::gloo_backend
