// Which of the ranks' streams an option is for (--redirects, --tee), and what follows from all such
// options for one stream. Pure.
#pragma once

#include <map>
#include <string_view>

namespace dtrun::launcher {

enum class Stream { kOut, kError };
/// What one of our own streams is.
enum class Destination { kTerminal, kOther };

/// "stdout", "stderr".
const char* name_of(Stream stream);

/// Bits as torchrun's 0 to 3: 1 is standard output, 2 standard error.
struct StreamChoice {
  int of_all = 0;
  std::map<int, int> of_local_rank;  ///< if not empty, only these ranks' streams are chosen

  bool includes(int local_rank, Stream stream) const;
  bool nothing() const;
  /// The largest local rank that is named; -1: none is.
  int last_local_rank() const;
};

/// "0" to "3" for all ranks, or "LOCAL_RANK:0-3,...". @throws Error kUsage
StreamChoice parse_stream_choice(std::string_view text);

}  // namespace dtrun::launcher
