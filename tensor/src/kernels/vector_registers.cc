#include "kernels/vector_registers.h"

#include <fmt/core.h>

#include <array>
#include <optional>
#include <string>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

constexpr const char* kVariable = "DTRUN_CPU_CAPABILITY";

/// In the order of VectorRegisters.
constexpr std::array<std::string_view, 3> kWords = {"default", "avx2", "avx512"};

VectorRegisters widest_registers() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return VectorRegisters::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return VectorRegisters::avx2;
#endif
  return VectorRegisters::sse2;
}

VectorRegisters chosen_registers() {
  const VectorRegisters widest = widest_registers();
  const std::optional<std::string> word = base::get_env(kVariable);
  return word ? registers_named(*word, widest) : widest;
}

}  // namespace

VectorRegisters registers_named(std::string_view word, VectorRegisters widest) {
  const auto most = static_cast<std::size_t>(widest);
  for (std::size_t k = 0; k < kWords.size(); ++k) {
    if (word != kWords[k]) continue;
    if (k <= most) return static_cast<VectorRegisters>(k);
    throw base::Error(
        base::ErrorCode::kUsage,
        fmt::format("{}={}, but this processor has no {}", kVariable, word, word),
        fmt::format("the most that it has is {}", kWords[most]),
        fmt::format("{}={}, or unset it, which takes the most there is", kVariable, kWords[most]));
  }
  throw base::Error(base::ErrorCode::kUsage,
                    fmt::format("{}={} is no set of vector instructions", kVariable, word), "",
                    "set it to default, avx2 or avx512, or unset it");
}

VectorRegisters vector_registers() {
  static const VectorRegisters chosen = chosen_registers();
  return chosen;
}

}  // namespace dtrun::tensors
