// The exception that is being handled, as text.
#pragma once

#include <optional>
#include <string>

#include "dtrun/base/error.h"

namespace dtrun::runtime {

struct ExceptionText {
  std::string type;                           ///< "std::runtime_error"
  std::string text;                           ///< its what(); empty where there is none
  std::optional<base::ErrorCode> error_code;  ///< of a dtrun Error

  /// "std::runtime_error: the data is bad", "an exception of type int"
  std::string describe() const;
};

/// To be called in a catch block, or where std::current_exception() is set.
ExceptionText current_exception_text();

/// Demangled.
std::string readable_type(const char* mangled);

}  // namespace dtrun::runtime
