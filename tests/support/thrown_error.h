// What an expression throws, as a value to look at.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dtrun/base/error.h"

namespace dtrun::testing_support {

/// The Error that `action` throws; nullopt when it throws none.
inline std::optional<base::Error> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return error;
  }
  return std::nullopt;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace dtrun::testing_support
