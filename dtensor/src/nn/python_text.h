// Values as Python's repr writes them.
#pragma once

#include <charconv>
#include <cstdlib>
#include <string>

#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor::nn {

/// "0.3", "1e-05", "1.0": with an exponent below 1e-4 and from 1e16 on.
inline std::string python_number(double value) {
  char text[400];
  char* const end = std::end(text);
  const std::string scientific(text,
                               std::to_chars(text, end, value, std::chars_format::scientific).ptr);
  const std::size_t mark = scientific.find('e');
  if (mark == std::string::npos) return scientific;
  const int exponent = std::atoi(scientific.c_str() + mark + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed(text, std::to_chars(text, end, value, std::chars_format::fixed).ptr);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

/// "(3, 4)", "(6,)".
inline std::string python_tuple(const tensors::Shape& sizes) {
  std::string text = "(";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + (sizes.size() == 1 ? ",)" : ")");
}

inline const char* python_bool(bool value) {
  return value ? "True" : "False";
}

}  // namespace dtrun::dtensor::nn
