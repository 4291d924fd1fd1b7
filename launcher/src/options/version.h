// Version: the text of dtrun --version about this build. Its first line stays "dtrun X.Y.Z".
#pragma once

#include <string>
#include <string_view>

namespace dtrun::launcher {

std::string version_text();
/// "X.Y.Z"
std::string_view version_number();

}  // namespace dtrun::launcher
