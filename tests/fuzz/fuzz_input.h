// FuzzInput: takes a fuzz target's bytes apart; where they end, zeros follow. And the check of a
// fuzz target: says what differs and aborts, which is how libFuzzer learns of a finding.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace dtrun::fuzz {

class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto result = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return result;
  }
  std::uint16_t word() {
    const std::uint8_t low = byte();
    return static_cast<std::uint16_t>(low | byte() << 8);
  }
  std::string_view take(std::size_t size) {
    const std::string_view result = left_.substr(0, size);
    left_.remove_prefix(result.size());
    return result;
  }
  std::string_view rest() { return take(left_.size()); }

 private:
  std::string_view left_;
};

/// A cheap generator for what the input need not say byte by byte, such as where to cut.
class Cuts {
 public:
  explicit Cuts(std::uint32_t seed) : state_(seed * 2654435761u + 1) {}
  /// The size of the next piece of `left` bytes: mostly small, at times all.
  std::size_t next(std::size_t left) {
    state_ = state_ * 1664525u + 1013904223u;
    const std::uint32_t random = state_ >> 16;
    const std::size_t size = random % 8 == 0 ? left : 1 + random / 8 % (1u << (random % 11));
    return size < left ? size : left;
  }

 private:
  std::uint32_t state_;
};

}  // namespace dtrun::fuzz

#define FUZZ_CHECK(condition, what)                                                       \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, std::string(what).c_str()); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)
