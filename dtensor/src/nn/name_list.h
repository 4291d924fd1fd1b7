// Names, as an error tells them.
#pragma once

#include <string>
#include <vector>

namespace dtrun::dtensor::nn {

/// "a, b, c and 9 more"; "nothing".
inline std::string name_list(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  if (names.empty()) return "nothing";
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMost; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more"
                              : text;
}

}  // namespace dtrun::dtensor::nn
