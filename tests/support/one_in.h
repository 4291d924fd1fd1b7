// one_in: how many of many alike cases a test runs. A sanitizer finds faults of the code, which a
// sample runs as well as all do, and makes each case many times slower.
#pragma once

namespace dtrun::testing_support {

/// @return `many` under a sanitizer, else 1
constexpr unsigned one_in([[maybe_unused]] unsigned many) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return many;
#else
  return 1;
#endif
}

}  // namespace dtrun::testing_support
