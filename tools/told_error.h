// What a tool says of an error: without the place in the source that called the library, which is
// the tool's own.
#pragma once

#include <string>

#include "dtrun/base/error.h"

namespace dtrun::tools {

inline std::string told(const base::Error& error) {
  std::string text = error.summary();
  if (!error.why().empty()) text += "\n  why: " + error.why();
  if (!error.remedy().empty()) text += "\n  try: " + error.remedy();
  return text;
}

}  // namespace dtrun::tools
