// Access to the process environment, and a value type for the environment of a child.
// Nothing else in the project calls getenv; getenv is safe as long as nobody calls setenv, and
// nobody here does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::base {

/// nullopt when unset; an empty value is "".
std::optional<std::string> get_env(const std::string& name);

/// Names to values. A copy of this process's environment, or one made by hand in a test.
class Environment {
 public:
  static Environment current();

  std::optional<std::string> get(const std::string& name) const;
  void set(const std::string& name, std::string value) { variables_[name] = std::move(value); }
  void unset(const std::string& name) { variables_.erase(name); }
  bool contains(const std::string& name) const { return variables_.count(name) != 0; }
  const std::map<std::string, std::string>& variables() const { return variables_; }
  /// "NAME=value" strings, sorted by name, as execve wants them.
  std::vector<std::string> as_strings() const;

 private:
  std::map<std::string, std::string> variables_;
};

/// The whole text as a decimal integer; nullopt for anything else (spaces, signs before nothing,
/// trailing characters, overflow).
std::optional<long long> parse_integer(std::string_view text);

}  // namespace dtrun::base
