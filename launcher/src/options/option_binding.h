// OptionBinding: reads the values of a line into variables, each by its type, from whichever source
// they are. CLI11's validators check them. A value that cannot be read is a kUsage that names the
// option or the variable as it was spelled, or the file and its line.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "options/command_line.h"

namespace dtrun::launcher {

class OptionBinding {
 public:
  /// Throws a demand() where it cannot read the text.
  using Parser = std::function<void(const std::string&)>;

  /// @param line of which the values are read; it stays where it is as long as this
  explicit OptionBinding(const CommandLine& line) : line_(line) {}

  // Variables of options that are not given stay as they are. All throw Error kUsage.
  void flag(const char* name, bool& target);
  void text(const char* name, std::string& target);
  void parsed(const char* name, const Parser& parser);
  template <typename Target, typename Parse>
  void parsed(const char* name, Target& target, Parse parse) {
    parsed(name, Parser([&](const std::string& text) { target = parse(text); }));
  }
  /// One word of several; `take` gets its number. Without a value the word is "1".
  void one_of(const char* name, const std::vector<std::string>& words,
              const std::function<void(std::size_t)>& take);
  template <typename Value>
  void choice(const char* name, Value& target,
              std::initializer_list<std::pair<const char*, Value>> meanings) {
    std::vector<std::string> words;
    std::vector<Value> values;
    for (const auto& [word, value] : meanings) {
      words.emplace_back(word);
      values.push_back(value);
    }
    one_of(name, words, [&](std::size_t at) { target = values[at]; });
  }

 private:
  const CommandLine& line_;
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
