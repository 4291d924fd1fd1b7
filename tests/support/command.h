// Command: a real program run by a test or a bench, with its output and end. It is a
// base::ToolProcess on an event loop of its own, which runs while one of these functions waits.
// Not thread-safe; the program dies with the thread that started it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::testing_support {

struct CommandOptions {
  /// Set for the program, on top of this process's environment; nullopt removes the variable. RANK,
  /// WORLD_SIZE and the rest of the worker environment are always removed first.
  std::map<std::string, std::optional<std::string>> environment = {};
  std::chrono::seconds limit{60};
  std::string folder = {};  ///< working directory; empty: the test's
  /// What the program reads: /dev/null, or a pipe that ends with close_input().
  enum class Input { kNothing, kPipe } input = Input::kNothing;
};

struct CommandResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  bool killed_at_limit = false;
  std::string out;
  std::string err;
  std::chrono::duration<double> elapsed{};

  /// Lines of `out`, sorted: ranks print in any order.
  std::vector<std::string> sorted_lines() const;
  /// Everything, for the message of a failed expectation.
  std::string describe() const;
};

/// A program in the background. Destroyed while it runs: killed and reaped.
class Command {
 public:
  /// A program that cannot be started counts as one that ended with 127, as a shell has it.
  explicit Command(const std::vector<std::string>& argv, CommandOptions options = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// -1 once it is reaped.
  pid_t pid() const;
  void close_input();
  void signal(int signal_number) const;
  /// Reads output until `text` has appeared on the program's standard output (true), or it closed
  /// or the limit passed.
  bool wait_for_output(const std::string& text);
  /// The next whole line of the program's standard output that begins with `prefix`, after the one
  /// that this returned last; nullopt: it closed, or the limit passed.
  std::optional<std::string> next_line(const std::string& prefix);
  /// Reads all output and reaps.
  CommandResult finish();

 private:
  struct Program;

  std::unique_ptr<Program> program_;
  CommandResult result_;
  std::size_t seen_ = 0;  // of the output, by next_line()
};

CommandResult run_command(const std::vector<std::string>& argv, CommandOptions options = {});

}  // namespace dtrun::testing_support
