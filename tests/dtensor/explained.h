// Explained: a call that is refused with a named error: what was called with which arguments, why
// that does not go, and what to try.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

using Words = std::vector<std::string>;

/// What the error lacks; empty: nothing.
inline std::string missing_in(const base::Error& error, const Words& words) {
  std::string missing;
  if (error.code() != base::ErrorCode::kInvalidArgument) missing += " the code";
  for (const std::string& word : words) {
    if (std::string(error.what()).find(word) == std::string::npos) missing += " '" + word + "'";
  }
  if (error.why().empty()) missing += " a reason";
  if (error.remedy().empty()) missing += " a remedy";
  return missing;
}

/// The error has all of the words, a reason and a remedy.
inline void expect_explained(const std::function<void()>& call, const Words& words) {
  try {
    call();
    ADD_FAILURE() << "no error: " << words.front();
  } catch (const base::Error& error) {
    EXPECT_EQ(missing_in(error, words), "") << error.what();
  }
}

}  // namespace dtrun::dtensor
