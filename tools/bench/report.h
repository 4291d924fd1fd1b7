// Report: what dtrun-bench measured, as a table, as JSON, as CSV. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/measurement.h"

namespace dtrun::bench {

struct ReportRow {
  Call call;
  int ranks = 1;
  Measurement measured;
  double bound = 0;  ///< microseconds (copy_bound.h); 0: not measured

  std::size_t bytes() const { return size_in_bytes(call, ranks); }
  double algbw() const;  ///< GB (10^9 bytes) a second, of the mean, as nccl-tests
  double busbw() const;
  /// The bound divided by the median time; 0: not known.
  double share_of_bound() const;
};

struct Report {
  std::string backend;
  std::string device;
  int ranks = 1;
  Check check = Check::results;
  std::vector<ReportRow> rows;

  std::uint64_t wrong() const;
};

/// The lines above the rows of an operation, and a row.
std::string table_head(const Report& report, const Call& call);
std::string table_line(const Report& report, const ReportRow& row);
/// One object, an object per row of all reports in it, which names its backend.
/// @param reports at least one, of the same ranks
std::string json_of(std::span<const Report> reports);
/// A head line, and a line per row of all reports.
std::string csv_of(std::span<const Report> reports);

}  // namespace dtrun::bench
