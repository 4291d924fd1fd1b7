// Which of the known names somebody meant who wrote another. Pure.
#pragma once

#include <string_view>
#include <vector>

namespace dtrun::launcher {

/// The nearest of the names; empty where none is near. A mistyped beginning of a name counts as
/// near to it.
std::string_view nearest_name(std::string_view written, const std::vector<std::string_view>& names);

}  // namespace dtrun::launcher
