// ProgramFile: facts about a program that its file shows before it runs.
#pragma once

#include <string>

namespace dtrun::launcher {

/// Whether it is an ELF file of this machine with dtrun's runtime linked into it, so that its ranks
/// present the token of their store. False for a file that cannot be read, and for a program that
/// has the runtime in a shared library. Trusts no size or offset in the file.
bool presents_store_token(const std::string& path);

}  // namespace dtrun::launcher
