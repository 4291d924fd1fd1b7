// OptionBinding: reads the values of a line into variables, each by its type. CLI11 parses them, as
// a line of its own: one `--name value` for each option, from whichever source. A value that cannot
// be read is a kUsage that names the option or the variable as it was spelled, or the file and its
// line.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "options/command_line.h"

// Its header takes seconds to compile.
namespace CLI {
class App;
}

namespace dtrun::launcher {

class OptionBinding {
 public:
  /// Throws a demand() where it cannot read the text.
  using Parser = std::function<void(const std::string&)>;

  /// @param line of which the values are read; it stays where it is until read() has returned
  explicit OptionBinding(const CommandLine& line);
  ~OptionBinding();

  // Variables of options that are not given stay as they are.
  void flag(const char* name, bool& target);
  void text(const char* name, std::string& target);
  void parsed(const char* name, Parser parser);
  template <typename Target, typename Parse>
  void parsed(const char* name, Target& target, Parse parse) {
    parsed(name, [&target, parse](const std::string& text) { target = parse(text); });
  }
  /// One word of several; `take` gets its number. Without a value the word is "1".
  void one_of(const char* name, const std::vector<std::string>& words,
              std::function<void(std::size_t)> take);
  template <typename Value>
  void choice(const char* name, Value& target,
              std::initializer_list<std::pair<const char*, Value>> meanings) {
    std::vector<std::string> words;
    std::vector<Value> values;
    for (const auto& [word, value] : meanings) {
      words.emplace_back(word);
      values.push_back(value);
    }
    one_of(name, words, [&target, values](std::size_t at) { target = values[at]; });
  }

  /// Reads them all, in the order of the calls above. @throws Error kUsage
  void read();

 private:
  const CommandLine& line_;
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> words_;  // of the line that CLI11 gets
};

/// An Error that says what a value must be; it completes "--nnodes=0 ...".
base::Error demand(std::string text);

// Parsers of values. Not CLI11's own conversions: to those, 010 is 8 and nan a number of seconds.

int parse_integer_within(const std::string& text, int least, int most);
std::chrono::nanoseconds parse_seconds(const std::string& text);
inline auto within(int least, int most) {
  return [least, most](const std::string& text) { return parse_integer_within(text, least, most); };
}

}  // namespace dtrun::launcher
