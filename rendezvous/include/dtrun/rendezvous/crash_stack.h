// The stack of a rank that was ended by a signal of its own fault, as its handler writes it into
// error.json ("py_callstack"): a frame a line, the innermost first,
//   #0 0x55d0c0de1234 /home/me/app+0x1234
// with the address in the process, the file that the code comes from, and the address in that file,
// as addr2line wants it. Without a file the line ends after the address. The handler may not take
// memory or locks, so it writes these lines itself (runtime/src/crash_handler.cc). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::rendezvous {

/// Deeper frames are not written.
inline constexpr int kMostCrashFrames = 64;

struct CrashFrame {
  std::uint64_t address = 0;
  std::string file;  ///< empty: not known
  std::uint64_t offset = 0;
};

/// Empty: the text is no such stack, but one of Python's, for example.
std::vector<CrashFrame> parse_crash_stack(const std::string& text);

}  // namespace dtrun::rendezvous
