// TerminalRows: the lines that several streams have begun on one terminal: a progress bar, a
// prompt. The last of them stands in the terminal's last row; it gives way to the others' lines,
// comes back below them, and goes on there, so that no line is torn. Pure: returns the bytes to
// write.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace dtrun::base {

class TerminalRows {
 public:
  using Writer = const void*;  ///< only compared

  /// No line is begun, and none has been left without its end.
  bool empty() const { return rows_.empty() && !dangling_; }

  /// The bytes that put the writer's bytes onto a terminal of so many columns; 0: it cannot erase.
  std::string put(Writer writer, std::string_view bytes, std::size_t columns);
  /// The writer writes no more; its unfinished line stays.
  std::string end(Writer writer, std::size_t columns);

 private:
  void leave_row(std::string& to, std::size_t columns);
  void keep_row(Writer writer, std::string_view bytes);

  std::map<Writer, std::string> rows_;  // begun: what stands in the row, or would
  Writer shown_ = nullptr;              // whose row is the terminal's last
  bool dangling_ = false;               // the last row is of one that has ended
};

}  // namespace dtrun::base
