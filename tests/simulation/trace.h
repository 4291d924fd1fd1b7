// What happened in a run, as one number that is equal only for equal runs, and as lines where they
// are asked for.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>

#include "agenda.h"

namespace dtrun::simulation {

class Trace {
 public:
  enum class Output { kHashOnly, kLines };
  explicit Trace(Output output) : output_(output) {}

  void mix(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x100000001b3ULL;
    hash_ ^= hash_ >> 29;
  }
  std::uint64_t hash() const { return hash_; }
  bool has_lines() const { return output_ == Output::kLines; }

  template <typename... Arguments>
  void line(Moment now, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (!has_lines()) return;
    fmt::print("{:>14.6f}  {}\n", static_cast<double>(now.count()) / 1e9,
               fmt::format(format, std::forward<Arguments>(arguments)...));
  }

 private:
  Output output_;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace dtrun::simulation
