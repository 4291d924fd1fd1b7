// The programs that the tests of jobs start.
#pragma once

#include <string>

namespace dtrun::runtime {

inline const std::string kHello = DTRUN_BIN "/hello";
inline const std::string kMisbehave = DTRUN_BIN "/misbehave";
inline const std::string kMeet = DTRUN_BIN "/meet";

}  // namespace dtrun::runtime
