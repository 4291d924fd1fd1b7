#include "rounds/natural_order.h"

namespace dtrun::rendezvous {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The run of digits at `at`, without leading zeros; moves `at` behind it.
std::string_view take_number(std::string_view text, std::size_t& at) {
  while (at + 1 < text.size() && text[at] == '0' && is_digit(text[at + 1])) ++at;
  const std::size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

}  // namespace

bool naturally_before(std::string_view left, std::string_view right) {
  std::size_t i = 0, j = 0;
  while (i < left.size() && j < right.size()) {
    if (is_digit(left[i]) && is_digit(right[j])) {
      const std::string_view a = take_number(left, i), b = take_number(right, j);
      if (a.size() != b.size()) return a.size() < b.size();
      if (a != b) return a < b;
    } else if (left[i] != right[j]) {
      return left[i] < right[j];
    } else {
      ++i;
      ++j;
    }
  }
  return left.size() - i < right.size() - j;
}

}  // namespace dtrun::rendezvous
