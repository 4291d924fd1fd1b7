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
constexpr double kLegend = 110;
constexpr double kLegendHeight = 18;
constexpr std::size_t kColours = 6;

constexpr std::string_view kStyle = R"(<style>
text { font: 11px system-ui, sans-serif; fill: #5b6570; }
.head { font-size: 15px; fill: #1b1f24; }
.name { font-size: 13px; fill: #1b1f24; }
.paper { fill: #ffffff; }
.grid { stroke: #e3e6ea; stroke-width: 1; }
.line { stroke-width: 2; fill: none; stroke-linejoin: round; }
.l0 { stroke: #0b62c4; } .d0 { fill: #0b62c4; }
.l1 { stroke: #c2410c; } .d1 { fill: #c2410c; }
.l2 { stroke: #15803d; } .d2 { fill: #15803d; }
.l3 { stroke: #8b2fc9; } .d3 { fill: #8b2fc9; }
.l4 { stroke: #8a6d00; } .d4 { fill: #8a6d00; }
.l5 { stroke: #0e7c86; } .d5 { fill: #0e7c86; }
.bound { stroke: #7a8490; stroke-width: 1.5; fill: none; stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
 text { fill: #9aa4af; }
 .head, .name { fill: #e8eaed; }
 .paper { fill: #14171b; }
 .grid { stroke: #2c3238; }
 .l0 { stroke: #6cb2ff; } .d0 { fill: #6cb2ff; }
 .l1 { stroke: #ff9a62; } .d1 { fill: #ff9a62; }
 .l2 { stroke: #5fd38d; } .d2 { fill: #5fd38d; }
 .l3 { stroke: #d9a3ff; } .d3 { fill: #d9a3ff; }
 .l4 { stroke: #e3c54d; } .d4 { fill: #e3c54d; }
 .l5 { stroke: #5bd0da; } .d5 { fill: #5bd0da; }
 .bound { stroke: #8d97a2; }
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

/// What one report has of an operation.
struct Line {
  std::size_t report;
  std::vector<const ReportRow*> rows;
};

struct Panel {
  Operation operation;
  std::vector<Line> lines;
};

/// In the order in which the operations first come.
std::vector<Panel> panels_of(std::span<const Report> reports) {
  std::vector<Panel> panels;
  for (std::size_t report = 0; report < reports.size(); ++report)
    for (const ReportRow& row : reports[report].rows) {
      if (!is_drawn(row)) continue;
      auto panel = std::ranges::find(panels, row.call.operation, &Panel::operation);
      if (panel == panels.end()) panel = panels.insert(panel, {row.call.operation, {}});
      if (panel->lines.empty() || panel->lines.back().report != report)
        panel->lines.push_back({report, {}});
      panel->lines.back().rows.push_back(&row);
    }
  if (panels.empty())
    throw base::Error(base::ErrorCode::kUsage, "there is nothing to draw",
                      "no operation moved bytes between ranks",
                      "at least two ranks, and another operation than barrier");
  return panels;
}

template <typename Act>
void for_each_row(const std::vector<Panel>& panels, const Act& act) {
  for (const Panel& panel : panels)
    for (const Line& line : panel.lines)
      for (const ReportRow* row : line.rows) act(*row);
}

Axis size_axis(const std::vector<Panel>& panels) {
  Axis axis{std::numeric_limits<double>::max(), 1, kWidth};
  for_each_row(panels, [&](const ReportRow& row) {
    axis.low = std::min(axis.low, static_cast<double>(row.bytes()));
    axis.high = std::max(axis.high, static_cast<double>(row.bytes()));
  });
  axis.low = std::exp2(std::floor(std::log2(axis.low)));
  axis.high = std::exp2(std::ceil(std::log2(axis.high)));
  return axis;
}

Axis bandwidth_axis(const std::vector<Panel>& panels) {
  Axis axis{std::numeric_limits<double>::max(), 0, kHeight};
  for_each_row(panels, [&](const ReportRow& row) {
    axis.low = std::min(axis.low, row.busbw());
    axis.high = std::max({axis.high, row.busbw(), bound_of(row)});
  });
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

std::string points(const std::vector<std::pair<double, double>>& places) {
  std::string text;
  for (const auto& [x, y] : places) text += fmt::format("{:.1f},{:.1f} ", x, y);
  return text;
}

std::string draw(const Line& line, std::string_view name, const Axis& sizes,
                 const Axis& bandwidths) {
  std::vector<std::pair<double, double>> measured, bound;
  std::string dots;
  const std::size_t colour = line.report % kColours;
  for (const ReportRow* row : line.rows) {
    const double x = sizes.place(static_cast<double>(row->bytes()));
    const double y = kHeight - bandwidths.place(row->busbw());
    measured.emplace_back(x, y);
    dots += fmt::format(
        "<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}, {}: {:.3g} "
        "GB/s</title></circle>\n",
        colour, x, y, name, size_text(row->bytes()), row->busbw());
    if (const double most = bound_of(*row); most > 0)
      bound.emplace_back(x, kHeight - bandwidths.place(most));
  }
  std::string text;
  // The peers copy the same memory: one bound is enough.
  if (!bound.empty() && line.report == 0)
    text += fmt::format("<polyline class=\"bound\" points=\"{}\"/>\n", points(bound));
  return text +
         fmt::format("<polyline class=\"line l{}\" points=\"{}\"/>\n", colour, points(measured)) +
         dots;
}

std::string draw(const Panel& panel, std::span<const Report> reports, const Axis& sizes,
                 const Axis& bandwidths) {
  std::string text = fmt::format("<text class=\"name\" x=\"0\" y=\"-10\">{}</text>\n",
                                 operation_name(panel.operation));
  // The first on top.
  for (auto line = panel.lines.rbegin(); line != panel.lines.rend(); ++line)
    text += draw(*line, reports[line->report].backend, sizes, bandwidths);
  return text;
}

/// What is drawn, and by whom where there are several.
std::string head(std::span<const Report> reports) {
  const Report& first = reports.front();
  const std::string of_whom = reports.size() > 1 ? "" : ", backend " + first.backend;
  std::string text = fmt::format(
      "<text class=\"head\" x=\"16\" y=\"24\">Bus bandwidth in GB/s over size: {} ranks{}, tensors "
      "on {}</text>\n"
      "<text x=\"16\" y=\"42\">Solid: measured. Dashed: the bound, if the ranks copied memory at "
      "once and did nothing else.</text>\n",
      first.ranks, of_whom, first.device);
  for (std::size_t i = 0; i < reports.size() && reports.size() > 1; ++i) {
    const double x = 16 + kLegend * static_cast<double>(i);
    text += fmt::format(
        "<line class=\"line l{}\" x1=\"{}\" x2=\"{}\" y1=\"58\" y2=\"58\"/>"
        "<text x=\"{}\" y=\"62\">{}</text>\n",
        i % kColours, x, x + 18, x + 24, reports[i].backend);
  }
  return text;
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

std::string svg_of(std::span<const Report> reports) {
  const std::vector<Panel> panels = panels_of(reports);
  const Axis sizes = size_axis(panels);
  const Axis bandwidths = bandwidth_axis(panels);
  const double cell_width = kLeft + kWidth + kRight;
  const double cell_height = kTop + kHeight + kBottom;
  const double above = kHead + (reports.size() > 1 ? kLegendHeight : 0);
  const auto columns = std::min<std::size_t>(panels.size(), kColumns);
  const double width = std::max({cell_width * static_cast<double>(columns), 620.0,
                                 16 + kLegend * static_cast<double>(reports.size())});
  const double height =
      above + cell_height * std::ceil(static_cast<double>(panels.size()) / kColumns) + 8;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
      "height=\"{}\">\n",
      width, height, width, height);
  text += kStyle;
  text += "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n" + head(reports);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    text += fmt::format("<g transform=\"translate({},{})\">\n",
                        kLeft + cell_width * static_cast<double>(i % kColumns),
                        above + kTop + cell_height * static_cast<double>(i / kColumns));
    text += grid(sizes, bandwidths) + draw(panels[i], reports, sizes, bandwidths) + "</g>\n";
  }
  return text + "</svg>\n";
}

}  // namespace dtrun::bench
