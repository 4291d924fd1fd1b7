// Completion: what bash offers while a line of dtrun is typed, made from the option table.
#pragma once

#include <string>

namespace dtrun::launcher {

/// To be sourced by bash, or put into share/bash-completion/completions/dtrun. It offers options in
/// the spelling that was begun, the words that a value may be, files, and after the program what
/// bash offers for that.
std::string bash_completion();

}  // namespace dtrun::launcher
