// HelpText: dtrun --help, made from the option table and laid out by CLI11.
#pragma once

#include <string>

#include "options/option_table.h"

namespace dtrun::launcher {

/// All options, in groups, after some examples; no line is longer than 92 characters.
std::string help_text();
/// The whole help of one option.
std::string help_text(const OptionRow& row);

}  // namespace dtrun::launcher
