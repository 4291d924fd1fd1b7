// Who takes part in a save or a load.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dtrun/dtensor/checkpoint/agreement.h"

namespace dtrun::dtensor::dcp {

/// Null where the caller has given one. Without a group: the thread's default group, or this
/// process alone.
std::unique_ptr<Agreement> agreement_of(const std::optional<collectives::ProcessGroup>& group,
                                        const Agreement* given);
/// Without slashes at its end. @throws Error kInvalidArgument for a path that names no folder
std::string checked_folder(const std::string& path);

}  // namespace dtrun::dtensor::dcp
