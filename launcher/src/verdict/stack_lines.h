// The stack of a crashed rank as people read it: functions, files and lines instead of addresses.
// They come from addr2line or eu-addr2line, whichever is there, else from the symbols of the files,
// which know no lines. Runs those programs, and waits for them; for a thread that may wait.
#pragma once

#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/crash_stack.h"

namespace dtrun::launcher {

/// What a program says about one address. Texts may be empty.
struct CodePlace {
  std::string function;
  std::string line;  ///< "app.cc:12"
};

/// Of each address the places that addr2line -a -f -C -i has printed: the innermost inlined
/// function first. Pure. @param count of the addresses that it was asked about
std::vector<std::vector<CodePlace>> parse_addr2line(const std::string& printed, std::size_t count);

/// A line a frame: "#0 fill(int*) at app.cc:12", "#1 0x1234 in libfoo.so". What has called main is
/// left away, and what does not fit into 2000 bytes; a recursion is "#1-#40 fill(int*) at
/// app.cc:9".
/// @param stacks of ranks of one node. Frames that several have are looked up once
/// @param deadline of the programs; what they have not said by then stays an address
std::vector<std::string> readable_stacks(
    const std::vector<std::vector<rendezvous::CrashFrame>>& stacks, base::Deadline deadline);

}  // namespace dtrun::launcher
