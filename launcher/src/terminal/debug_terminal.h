// DebugTerminal: the terminal of the rank that is debugged (--debug-rank): a pseudo terminal, which
// is the controlling terminal of a session of its own, so that the debugger has job control there.
// TerminalRelay carries its bytes to and from this process's own terminal, which is raw meanwhile:
// Ctrl-C is the debugger's. Agent and guard both have it; neither is thread-safe.
#pragma once

#include <memory>

#include "dtrun/base/unique_fd.h"

struct termios;

namespace dtrun::launcher {

class DebugTerminal {
 public:
  /// With this process's terminal's size and modes. @throws Error kSystem
  DebugTerminal();
  ~DebugTerminal();
  DebugTerminal(const DebugTerminal&) = delete;
  DebugTerminal& operator=(const DebugTerminal&) = delete;

  /// What the rank has as its standard streams.
  int rank_end() const { return rank_end_.get(); }
  /// This process needs the rank's end no more. When no process has it, the debugger has ended.
  void leave_rank_end() { rank_end_.reset(); }
  /// What is read and written on the other side. Does not block.
  int own_end() const { return own_end_.get(); }

  /// Keys go through at once and unchanged. Output stays as it was, for the other ranks' lines.
  void make_raw() const;
  /// The modes that this process's terminal had; also from a process of another session.
  void restore() const;
  void copy_size() const;

 private:
  std::unique_ptr<termios> usual_;
  base::UniqueFd own_end_;
  base::UniqueFd rank_end_;
};

/// Runs on a thread of its own from the beginning on, until the debugger has ended. The destructor
/// waits for what the debugger has written, a second at the most, and restores the terminal.
class TerminalRelay {
 public:
  /// @throws Error kSystem
  explicit TerminalRelay(std::shared_ptr<DebugTerminal> terminal);
  ~TerminalRelay();
  TerminalRelay(const TerminalRelay&) = delete;
  TerminalRelay& operator=(const TerminalRelay&) = delete;

 private:
  struct Shared;
  class Pump;
  std::shared_ptr<Shared> shared_;
};

}  // namespace dtrun::launcher
