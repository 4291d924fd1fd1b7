#include "bench/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "dtrun/base/error.h"

namespace dtrun::bench {
namespace {

constexpr int kColumns = 3;
constexpr double kWidth = 260;   // of a panel's plot
constexpr double kHeight = 150;  // of it
constexpr double kLeft = 52;
constexpr double kTop = 30;
constexpr double kRight = 18;
constexpr double kBottom = 28;
constexpr double kHead = 52;  // above all panels

constexpr std::string_view kStyle = R"(<style>
text { font: 11px system-ui, sans-serif; fill: #5b6570; }
.head { font-size: 15px; fill: #1b1f24; }
.name { font-size: 13px; fill: #1b1f24; }
.paper { fill: #ffffff; }
.grid { stroke: #e3e6ea; stroke-width: 1; }
.line { stroke: #0b62c4; stroke-width: 2; fill: none; stroke-linejoin: round; }
.dot { fill: #0b62c4; }
.bound { stroke: #b35900; stroke-width: 1.5; fill: none; stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
 text { fill: #9aa4af; }
 .head, .name { fill: #e8eaed; }
 .paper { fill: #14171b; }
 .grid { stroke: #2c3238; }
 .line { stroke: #6cb2ff; }
 .dot { fill: #6cb2ff; }
 .bound { stroke: #f0a050; }
}
</style>
)";

/// A logarithmic axis from `low` to `high`, which are powers of its base.
struct Axis {
  double low;
  double high;
  double length;
  double place(double value) const {
    if (high <= low) return length / 2;
    return length * std::log(value / low) / std::log(high / low);
  }
};

bool is_drawn(const ReportRow& row) {
  return row.busbw() > 0;
}

double bound_of(const ReportRow& row) {
  const double share = row.share_of_bound();
  if (share <= 0) return 0;
  const double at_median = row.busbw() * row.measured.mean / row.measured.p50;
  return at_median / share;
}

struct Panel {
  Operation operation;
  std::vector<const ReportRow*> rows;
};

std::vector<Panel> panels_of(const Report& report) {
  std::vector<Panel> panels;
  for (const ReportRow& row : report.rows) {
    if (!is_drawn(row)) continue;
    if (panels.empty() || panels.back().operation != row.call.operation)
      panels.push_back({row.call.operation, {}});
    panels.back().rows.push_back(&row);
  }
  if (panels.empty())
    throw base::Error(base::ErrorCode::kUsage, "there is nothing to draw",
                      "no operation moved bytes between ranks",
                      "at least two ranks, and another operation than barrier");
  return panels;
}

Axis size_axis(const std::vector<Panel>& panels) {
  Axis axis{std::numeric_limits<double>::max(), 1, kWidth};
  for (const Panel& panel : panels)
    for (const ReportRow* row : panel.rows) {
      axis.low = std::min(axis.low, static_cast<double>(row->bytes()));
      axis.high = std::max(axis.high, static_cast<double>(row->bytes()));
    }
  axis.low = std::exp2(std::floor(std::log2(axis.low)));
  axis.high = std::exp2(std::ceil(std::log2(axis.high)));
  return axis;
}

Axis bandwidth_axis(const std::vector<Panel>& panels) {
  Axis axis{std::numeric_limits<double>::max(), 0, kHeight};
  for (const Panel& panel : panels)
    for (const ReportRow* row : panel.rows) {
      axis.low = std::min(axis.low, row->busbw());
      axis.high = std::max({axis.high, row->busbw(), bound_of(*row)});
    }
  axis.low = std::pow(10, std::floor(std::log10(axis.low)));
  axis.high = std::pow(10, std::ceil(std::log10(axis.high)));
  return axis;
}

std::string grid(const Axis& sizes, const Axis& bandwidths) {
  std::string text;
  for (double value = bandwidths.low; value <= bandwidths.high * 1.001; value *= 10) {
    const double y = kHeight - bandwidths.place(value);
    text += fmt::format(
        "<line class=\"grid\" x1=\"0\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"-6\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        kWidth, y, y, y + 4, value);
  }
  const double powers = std::log2(sizes.high / sizes.low);
  const double step = std::exp2(std::max(1.0, std::ceil(powers / 4)));
  for (double value = sizes.low; value <= sizes.high * 1.001; value *= step) {
    const double x = sizes.place(value);
    text += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"0\" y2=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        x, x, kHeight, x, kHeight + 16, size_text(static_cast<std::size_t>(value)));
    if (sizes.high <= sizes.low) break;
  }
  return text;
}

std::string draw(const Panel& panel, const Axis& sizes, const Axis& bandwidths) {
  std::string line;
  std::string bound;
  std::string dots;
  for (const ReportRow* row : panel.rows) {
    const double x = sizes.place(static_cast<double>(row->bytes()));
    const double y = kHeight - bandwidths.place(row->busbw());
    line += fmt::format("{:.1f},{:.1f} ", x, y);
    dots += fmt::format(
        "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {:.3g} "
        "GB/s</title></circle>\n",
        x, y, size_text(row->bytes()), row->busbw());
    if (const double most = bound_of(*row); most > 0)
      bound += fmt::format("{:.1f},{:.1f} ", x, kHeight - bandwidths.place(most));
  }
  std::string text = fmt::format("<text class=\"name\" x=\"0\" y=\"-10\">{}</text>\n",
                                 operation_name(panel.operation));
  if (!bound.empty()) text += fmt::format("<polyline class=\"bound\" points=\"{}\"/>\n", bound);
  return text + fmt::format("<polyline class=\"line\" points=\"{}\"/>\n", line) + dots;
}

}  // namespace

std::string size_text(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string svg_of(const Report& report) {
  const std::vector<Panel> panels = panels_of(report);
  const Axis sizes = size_axis(panels);
  const Axis bandwidths = bandwidth_axis(panels);
  const double cell_width = kLeft + kWidth + kRight;
  const double cell_height = kTop + kHeight + kBottom;
  const auto columns = std::min<std::size_t>(panels.size(), kColumns);
  const double width = std::max(cell_width * static_cast<double>(columns), 620.0);
  const double height =
      kHead + cell_height * std::ceil(static_cast<double>(panels.size()) / kColumns) + 8;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
      "height=\"{}\">\n",
      width, height, width, height);
  text += kStyle;
  text += fmt::format(
      "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
      "<text class=\"head\" x=\"16\" y=\"24\">Bus bandwidth in GB/s over size: {} ranks, backend "
      "{}, tensors on {}</text>\n"
      "<text x=\"16\" y=\"42\">Solid: measured. Dashed: the bound, if the ranks copied memory at "
      "once "
      "and did nothing else.</text>\n",
      report.ranks, report.backend, report.device);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    text += fmt::format("<g transform=\"translate({},{})\">\n",
                        kLeft + cell_width * static_cast<double>(i % kColumns),
                        kHead + kTop + cell_height * static_cast<double>(i / kColumns));
    text += grid(sizes, bandwidths) + draw(panels[i], sizes, bandwidths) + "</g>\n";
  }
  return text + "</svg>\n";
}

}  // namespace dtrun::bench
