// OptionValues: the values of one command line, each read by its type. A value that cannot be read
// is a kUsage that names the option or the variable as it was spelled, or the file and its line.
#pragma once

#include <chrono>
#include <string>

#include "dtrun/base/error.h"
#include "options/command_line.h"

namespace dtrun::launcher {

class OptionValues {
 public:
  explicit OptionValues(CommandLine line) : line_(std::move(line)) {}

  const CommandLine& line() const { return line_; }
  bool has(const char* name) const { return line_.values.count(name) != 0; }
  const GivenValue& get(const char* name) const { return line_.values.at(name); }
  std::string text(const char* name, std::string otherwise) const;
  int integer(const char* name, int otherwise, int least, int most) const;
  std::chrono::nanoseconds seconds(const char* name, std::chrono::nanoseconds otherwise) const;

  /// @throws Error "--nnodes=0 <demand>"
  [[noreturn]] void reject(const char* name, const std::string& demand) const;

 private:
  CommandLine line_;
};

}  // namespace dtrun::launcher
