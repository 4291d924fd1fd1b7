// Version: what dtrun --version says of this build. Its first line stays "dtrun X.Y.Z".
#pragma once

#include <string>

namespace dtrun::launcher {

std::string version_text();

}  // namespace dtrun::launcher
