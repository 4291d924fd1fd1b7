// The backends that the program has registered: process-wide, because names are. None is ever taken
// back, so what is found stays where it is. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "make_backend.h"

namespace dtrun::collectives {

/// nullptr: no such name is registered.
const BackendKind* registered_backend(std::string_view name);
/// By name.
std::vector<std::string> registered_backend_names();
/// The backend that its factory makes. @throws Error what the factory throws, with the backend's
/// name and the group's; kSystem or kInvalidArgument where it makes none, or one that does not fit
std::unique_ptr<Backend> make_registered(const BackendKind& kind, const GroupOptions& options);

}  // namespace dtrun::collectives
