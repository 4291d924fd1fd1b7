// TagTemplate: what stands before each line of a rank's output: text with macros, ${rank} or $rank,
// and $$ for a dollar. TaggedLines puts it there. Both without I/O and clock.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "options/stream_choice.h"

namespace dtrun::launcher {

/// The facts about a line's origin that a tag can show.
struct LineOrigin {
  int node_rank = 0;
  std::string host;
  std::string rank;        ///< "3", or "0-3,7" of folded lines
  std::string local_rank;  ///< as well
  std::string role;
  Stream stream = Stream::kOut;
};

/// When the line was read.
struct LineTime {
  std::chrono::system_clock::time_point time;
  std::chrono::nanoseconds elapsed{};  ///< since dtrun started
};

/// "2026-11-21T20:27:15.123Z"
std::string iso_time(std::chrono::system_clock::time_point time);

class TagTemplate {
 public:
  enum class Unknown {
    kLeft,     ///< an unknown macro is text, as in torchrun
    kRefused,  ///< parse() throws
  };

  TagTemplate() = default;
  /// Macros: node, host, rank, local_rank, role, role_name, stream, time, elapsed.
  /// @throws Error kUsage
  static TagTemplate parse(std::string_view text, Unknown unknown);

  bool empty() const { return parts_.empty(); }
  /// Whether two lines of the same origin can have different tags.
  bool has_time() const;
  std::string render(const LineOrigin& origin, const LineTime& time) const;

 private:
  enum class Macro { kText, kNode, kHost, kRank, kLocalRank, kRole, kStream, kTime, kElapsed };
  struct Part {
    Macro macro = Macro::kText;
    std::string text;
  };
  static const std::vector<std::pair<std::string_view, Macro>>& macros();

  void add_text(std::string_view text);
  bool add_macro(std::string_view name);

  std::vector<Part> parts_;
};

/// The tag in a colour that is always the same for a rank; what follows its last visible character
/// stays as it is.
std::string in_colour_of_rank(const std::string& tag, int rank);

/// Puts a tag before every line of one stream, which comes in pieces; on a terminal also after a
/// carriage return that begins the line anew, as progress bars do.
class TaggedLines {
 public:
  explicit TaggedLines(Destination destination)
      : terminal_(destination == Destination::kTerminal) {}
  /// `tag` is asked for once per piece. The result is good until the next call.
  std::string_view add(std::string_view bytes, std::string_view tag);
  bool in_line() const { return in_line_; }

 private:
  void add_line(std::string_view line, std::string_view tag);

  std::string tagged_;
  bool terminal_;
  bool in_line_ = false;
  bool returned_ = false;  // on a terminal, to the beginning of the line
};

}  // namespace dtrun::launcher
