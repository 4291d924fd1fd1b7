#include "options/version.h"

#include <fmt/core.h>

#include <CLI/Version.hpp>
#include <boost/version.hpp>

#include "generated/git_hash.h"

namespace dtrun::launcher {

std::string version_text() {
#ifdef __clang__
  constexpr const char* kCompiler = "clang " __clang_version__;
#else
  constexpr const char* kCompiler = "g++ " __VERSION__;
#endif
  std::string result = fmt::format("dtrun {}\n", DTRUN_VERSION);
  const std::string hash = DTRUN_GIT_HASH;
  result += fmt::format("  commit:   {}\n", hash.empty() ? "not known" : hash);
  result += fmt::format("  compiler: {}\n", kCompiler);
  result += fmt::format("  build:    {}\n", DTRUN_BUILD);
  result +=
      fmt::format("  launcher: Boost {}.{}.{}, fmt {}.{}.{}, CLI11 {}\n", BOOST_VERSION / 100000,
                  BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100, FMT_VERSION / 10000,
                  FMT_VERSION / 100 % 100, FMT_VERSION % 100, CLI11_VERSION);
  result += fmt::format("  programs: CUDA and NCCL {}, gloo {}, mpi {}\n", DTRUN_WITH_CUDA,
                        DTRUN_WITH_GLOO, DTRUN_WITH_MPI);
  return result;
}

std::string_view version_number() {
  return DTRUN_VERSION;
}

}  // namespace dtrun::launcher
