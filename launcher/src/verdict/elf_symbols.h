// The functions of a program or library, by its symbols: for a machine that has no addr2line. Reads
// the file; trusts nothing in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::launcher {

/// The function that each offset lies in, as C++ has its name; empty where none is known.
/// @param file 64 bits, of this machine's byte order; what is none, or cannot be read, knows
/// nothing
std::vector<std::string> functions_at(const std::string& file,
                                      const std::vector<std::uint64_t>& offsets);

/// Where this byte of the file lies in the program's or library's own addresses, as addr2line wants
/// them; the same number where the file is none.
std::uint64_t address_in_file(const std::string& file, std::uint64_t offset);

/// "dtrun::f(int)" of "_ZN5dtrun1fEi"; any other text stays.
std::string demangled(const std::string& name);

}  // namespace dtrun::launcher
