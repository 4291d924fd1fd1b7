// Plot: busbw over size as one SVG, a panel per operation, a line per report in it, all on the same
// logarithmic axes. The dashed line is the first report's bound, where it was measured. It follows
// the viewer's dark or light mode. Pure.
#pragma once

#include <span>
#include <string>

#include "bench/report.h"

namespace dtrun::bench {

/// @param reports at least one, of the same ranks; a legend names their backends where there are
///   several
/// @throws base::Error kUsage where no row has a bandwidth
std::string svg_of(std::span<const Report> reports);

/// "8 B", "64 KiB", "1.5 MiB".
std::string size_text(std::size_t bytes);

}  // namespace dtrun::bench
