#include "bench/report.h"

#include <fmt/format.h>

namespace dtrun::bench {
namespace {

constexpr std::size_t kNarrow = 10;

// Of the row, as all three forms write it; "none" where the operation has no such argument.
struct Words {
  explicit Words(const ReportRow& row)
      : type(row.call.operation == Operation::barrier ? "none"
                                                      : tensors::dtype_short_name(row.call.dtype)),
        reduction(reduces(row.call.operation) ? collectives::reduce_op_name(row.call.reduction)
                                              : "none"),
        root(has_root(row.call.operation) ? row.call.root : -1) {}
  std::string_view type;
  std::string_view reduction;
  int root;
};

std::string wrong_of(const Report& report, const ReportRow& row, std::string_view unchecked) {
  return report.check == Check::results ? fmt::to_string(row.measured.wrong)
                                        : std::string(unchecked);
}

std::string json_row(const Report& report, const ReportRow& row) {
  const Words words(row);
  const Measurement& m = row.measured;
  const auto number = [](double value) {
    return value > 0 ? fmt::format("{:.6g}", value) : std::string("null");
  };
  return fmt::format(
      " {{\"operation\": \"{}\", \"backend\": \"{}\", \"device\": \"{}\", \"bytes\": {}, "
      "\"count\": "
      "{}, \"type\": \"{}\", \"redop\": \"{}\", \"root\": {}, \"calls_per_sample\": {}, "
      "\"time_us\": "
      "{:.4f}, \"p50_us\": {:.4f}, \"p99_us\": {:.4f}, \"min_us\": {:.4f}, \"algbw\": {:.4f}, "
      "\"busbw\": {:.4f}, \"wrong\": {}, \"bound_us\": {}, \"bound_share\": {}}}",
      operation_name(row.call.operation), report.backend, report.device, row.bytes(),
      row.call.count, words.type, words.reduction, words.root, m.calls, m.mean, m.p50, m.p99,
      m.least, row.algbw(), row.busbw(), wrong_of(report, row, "null"), number(row.bound),
      number(row.share_of_bound()));
}

std::string csv_row(const Report& report, const ReportRow& row) {
  const Words words(row);
  const Measurement& m = row.measured;
  const double share = row.share_of_bound();
  return fmt::format("{},{},{},{},{},{},{},{},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{},{}\n",
                     operation_name(row.call.operation), report.backend, report.ranks, row.bytes(),
                     row.call.count, words.type, words.reduction, words.root, m.mean, m.p50, m.p99,
                     m.least, row.algbw(), row.busbw(), wrong_of(report, row, ""),
                     share > 0 ? fmt::format("{:.4f}", share) : "");
}

}  // namespace

double ReportRow::algbw() const {
  return measured.mean > 0 ? static_cast<double>(bytes()) / measured.mean / 1e3 : 0;
}

double ReportRow::busbw() const {
  return algbw() * bus_factor(call.operation, ranks);
}

double ReportRow::share_of_bound() const {
  return measured.p50 > 0 ? bound / measured.p50 : 0;
}

std::uint64_t Report::wrong() const {
  std::uint64_t sum = 0;
  for (const ReportRow& row : rows) sum += row.measured.wrong;
  return sum;
}

std::string table_head(const Report& report, const Call& call) {
  std::string head =
      fmt::format("# {}: {} ranks, backend {}, tensors on {}\n", operation_name(call.operation),
                  report.ranks, report.backend, report.device);
  head += fmt::format(
      "#{:>{w}} {:>{w}} {:>5} {:>10} {:>4} {:>{w}} {:>{w}} {:>{w}} {:>8} {:>8} {:>6} {:>6}\n",
      "size", "count", "type", "redop", "root", "time", "p50", "p99", "algbw", "busbw", "#wrong",
      "bound", fmt::arg("w", kNarrow));
  head += fmt::format(
      "#{:>{w}} {:>{w}} {:>5} {:>10} {:>4} {:>{w}} {:>{w}} {:>{w}} {:>8} {:>8} {:>6} {:>6}\n",
      "(B)", "(elements)", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "",
      fmt::arg("w", kNarrow));
  return head.substr(0, head.find_last_not_of(" \n") + 1) + "\n";
}

std::string table_line(const Report& report, const ReportRow& row) {
  const Words words(row);
  const Measurement& m = row.measured;
  const double share = row.share_of_bound();
  return fmt::format(
      " {:>{w}} {:>{w}} {:>5} {:>10} {:>4} {:>{w}.2f} {:>{w}.2f} {:>{w}.2f} {:>8.3f} {:>8.3f} "
      "{:>6} "
      "{:>6}\n",
      row.bytes(), row.call.count, words.type, words.reduction, words.root, m.mean, m.p50, m.p99,
      row.algbw(), row.busbw(), wrong_of(report, row, "N/A"),
      share > 0 ? fmt::format("{:.0f}%", share * 100) : "-", fmt::arg("w", kNarrow));
}

std::string json_of(std::span<const Report> reports) {
  const Report& first = reports.front();
  std::string backends;
  for (const Report& report : reports) backends += (backends.empty() ? "" : ",") + report.backend;
  std::string text = fmt::format(
      "{{\"program\": \"dtrun-bench\", \"backend\": \"{}\", \"device\": \"{}\", \"ranks\": {}, "
      "\"rows\": [",
      backends, first.device, first.ranks);
  const char* comma = "\n";
  for (const Report& report : reports)
    for (const ReportRow& row : report.rows) {
      text += comma + json_row(report, row);
      comma = ",\n";
    }
  return text + "\n]}\n";
}

std::string csv_of(std::span<const Report> reports) {
  std::string text =
      "operation,backend,ranks,bytes,count,type,redop,root,time_us,p50_us,p99_us,min_us,algbw,"
      "busbw,wrong,bound_share\n";
  for (const Report& report : reports)
    for (const ReportRow& row : report.rows) text += csv_row(report, row);
  return text;
}

}  // namespace dtrun::bench
