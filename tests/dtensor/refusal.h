// Refusal: a call that must throw an Error of one code and say why.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

inline void expect_refused(const std::function<void()>& call, const std::string& what,
                           base::ErrorCode code = base::ErrorCode::kInvalidArgument) {
  try {
    call();
    FAIL() << "no error: " << what;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

/// The error names all of the words.
inline void expect_refused(const std::function<void()>& call,
                           std::initializer_list<const char*> words,
                           base::ErrorCode code = base::ErrorCode::kInvalidArgument) {
  for (const char* word : words) expect_refused(call, std::string(word), code);
}

}  // namespace dtrun::dtensor
