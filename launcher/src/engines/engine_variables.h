// The values of an engine's environment variables, checked and converted. Pure.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dtrun/base/env.h"

namespace dtrun::launcher {

/// Empty counts as unset.
std::string engine_text(const base::Environment& environment, const char* name);
/// nullopt: not set. @throws Error kUsage: it is no number from 0 to `most`
std::optional<int> engine_number_if_any(const base::Environment& environment, const char* name,
                                        int most = INT_MAX);
/// @throws Error kUsage: not set; no number from 0 to `most`
int engine_number(const base::Environment& environment, const char* name, int most = INT_MAX);

/// A port that all processes of one job choose without talking to each other, and those of others
/// rarely: above the kernel's own choices.
std::uint16_t port_of_job(long long number);
/// The same for what is no number.
std::uint16_t port_of_job_name(std::string_view name);

}  // namespace dtrun::launcher
