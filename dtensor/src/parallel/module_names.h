// Module names by patterns: which modules of a model a plan means.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

/// "blocks.*.up": `*` and `?` stand for parts of one name, `[...]` for one of these letters, and a
/// name `**` for any number of names, none as well.
bool matches(const std::string& pattern, const std::string& path);

/// The modules within whose path matches, in the order of registration.
/// @throws Error kNotFound where none does, naming those there are
std::vector<std::pair<std::string, nn::Module*>> matching_modules(const char* call,
                                                                  nn::Module& module,
                                                                  const std::string& pattern);

}  // namespace dtrun::dtensor
