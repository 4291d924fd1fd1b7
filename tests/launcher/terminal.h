// Terminal: a program run by a test on a terminal of its own; TerminalJob: dtrun.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace dtrun::launcher {

// A program on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(std::vector<std::string> command, const char* terminal = "xterm") {
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      ::setenv("TERM", terminal, 1);
      ::setenv("LC_ALL", "C.UTF-8", 1);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      ::unsetenv("NO_COLOR");
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Terminal() { finish(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text) {
    EXPECT_EQ(::write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // What has come since wait_for() saw its text, and before what it sees now.
  std::string seen_before(const std::string& text) {
    const std::size_t from = from_;
    EXPECT_TRUE(wait_for(text)) << seen_;
    return seen_.substr(from, from_ - from);
  }
  // Reads until the text has come after what wait_for() saw last; false: the job ended before.
  bool wait_for(const std::string& text) {
    std::size_t at;
    while ((at = seen_.find(text, from_)) == std::string::npos)
      if (!read_some()) return false;
    from_ = at + text.size();
    return true;
  }
  const std::string& finish() {
    while (read_some()) {
    }
    if (pid_ > 0) ::waitpid(pid_, &status_, 0);
    pid_ = 0;
    return seen_;
  }
  int status() const { return status_; }
  pid_t pid() const { return pid_; }
  // Of the terminal.
  bool is_raw() const {
    termios modes{};
    return ::tcgetattr(fd_, &modes) == 0 && (modes.c_lflag & ICANON) == 0;
  }

 private:
  bool read_some() {
    if (fd_ < 0) return false;
    char block[4096];
    const ssize_t n = ::read(fd_, block, sizeof block);
    if (n > 0) {
      seen_.append(block, static_cast<std::size_t>(n));
      return true;
    }
    ::close(fd_);
    fd_ = -1;
    return false;
  }

  int fd_ = -1;
  pid_t pid_ = 0;
  int status_ = 0;
  std::string seen_;
  std::size_t from_ = 0;
};

class TerminalJob : public Terminal {
 public:
  explicit TerminalJob(std::vector<std::string> arguments, const char* terminal = "xterm")
      : Terminal(with_dtrun(std::move(arguments)), terminal) {}

 private:
  static std::vector<std::string> with_dtrun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DTRUN_BINARY);
    return arguments;
  }
};

}  // namespace dtrun::launcher
