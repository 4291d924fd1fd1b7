// Plot: busbw over size as one SVG, a panel per operation, all on the same logarithmic axes. The
// dashed line is the bound, where it was measured. It follows the viewer's dark or light mode.
// Pure.
#pragma once

#include <string>

#include "bench/report.h"

namespace dtrun::bench {

/// @throws base::Error kUsage where no row has a bandwidth
std::string svg_of(const Report& report);

/// "8 B", "64 KiB", "1.5 MiB".
std::string size_text(std::size_t bytes);

}  // namespace dtrun::bench
