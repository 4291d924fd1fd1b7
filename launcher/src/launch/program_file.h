// ProgramFile: what the file of a program tells about it before it runs.
#pragma once

#include <string>

namespace dtrun::launcher {

/// Whether it is an ELF file of this machine with dtrun's runtime linked into it, whose ranks
/// present the token of their store. False for whatever cannot be read, and for one that has the
/// runtime in a shared library. Believes nothing that the file says of sizes and places.
bool presents_store_token(const std::string& path);

}  // namespace dtrun::launcher
