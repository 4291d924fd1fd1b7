// A rule that was seen broken. Thrown by the referee, caught by simulate().
#pragma once

#include <stdexcept>
#include <string>

namespace dtrun::simulation {

class Violation : public std::runtime_error {
 public:
  Violation(std::string rule, const std::string& text)
      : std::runtime_error(text), rule_(std::move(rule)) {}
  const std::string& rule() const { return rule_; }

 private:
  std::string rule_;
};

}  // namespace dtrun::simulation
