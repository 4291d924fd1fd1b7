// ModuleSection: while a counter looks, the section of a module that is called: its path below the
// outermost module that is, whose class begins it: "Net.layers.0".
#pragma once

#include <optional>

#include "move/section.h"
#include "move/span.h"

namespace dtrun::dtensor::nn {

class Module;

class ModuleSection {
 public:
  explicit ModuleSection(Module& module);

 private:
  std::optional<StandingSection> section_;
  std::optional<Span> span_;
};

}  // namespace dtrun::dtensor::nn
