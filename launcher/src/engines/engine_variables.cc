#include "engines/engine_variables.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"

namespace dtrun::launcher {

using base::Environment;
using base::Error;
using base::ErrorCode;

std::string engine_text(const Environment& environment, const char* name) {
  return environment.get(name).value_or("");
}

std::optional<int> engine_number_if_any(const Environment& environment, const char* name,
                                        int most) {
  const std::string text = engine_text(environment, name);
  if (text.empty()) return std::nullopt;
  const auto value = base::parse_integer(text);
  if (!value || *value < 0 || *value > most)
    throw Error(ErrorCode::kUsage, fmt::format("{} is '{}'", name, text.substr(0, 100)),
                fmt::format("it must be a number from 0 to {}", most),
                "unset it, or give --scheduler=none, and all options by hand");
  return static_cast<int>(*value);
}

int engine_number(const Environment& environment, const char* name, int most) {
  const std::optional<int> value = engine_number_if_any(environment, name, most);
  if (value) return *value;
  throw Error(ErrorCode::kUsage, fmt::format("{} is not set, though its neighbours are", name),
              "the environment of srun, mpirun or another engine has come here in part only",
              "start dtrun by the engine itself, or with --scheduler=none");
}

std::uint16_t port_of_job(long long number) {
  // The range is JAX's.
  constexpr long long kFirst = 61440, kCount = 4096;
  return static_cast<std::uint16_t>(kFirst + number % kCount);
}

std::uint16_t port_of_job_name(std::string_view name) {
  // FNV-1a: the same in every build of dtrun, which std::hash need not be.
  std::uint32_t hash = 2166136261u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return port_of_job(hash);
}

}  // namespace dtrun::launcher
