// The text of a trace for chrome://tracing and https://ui.perfetto.dev: Chrome's trace event
// format, an event in a line. Times are nanoseconds of any one clock. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::base {

struct TraceSlice {
  std::string_view name;
  std::string_view category;
  int process = 0;
  int thread = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::string_view arguments = "{}";  ///< a JSON object
};
/// An event that begins and ends.
std::string trace_slice(const TraceSlice& slice);

/// What an arrow touches: the slice of that thread that stands at that time.
struct TraceArrow {
  enum class Part : char { start = 's', step = 't', end = 'f' };
  Part part = Part::start;
  std::uint64_t id = 0;   ///< the same for all parts of an arrow
  std::string_view name;  ///< the same, too: Perfetto joins parts that have both in common
  int process = 0;
  int thread = 0;
  std::int64_t at_ns = 0;
};
std::string trace_arrow(const TraceArrow& arrow);

/// @param what "process_name" or "thread_name"
std::string trace_name(std::string_view what, std::string_view name, int process, int thread);
/// Threads are shown in the order of these numbers.
std::string trace_thread_order(int process, int thread, int place);

/// Text, quoted and escaped as JSON wants it; what is no UTF-8 is replaced.
std::string json_text(std::string_view text);

/// A file of lines, or of some lines each, joined by commas.
/// @param facts more members of the file's object: "\"otherData\": {...}, "; may be empty
std::string trace_file(const std::vector<std::string>& lines, std::string_view facts = {});

/// Gives what goes on at the same time different lanes: slices of one thread must not cross.
class TraceLanes {
 public:
  /// In the order of the beginnings. @return the lane, from 0
  int take(std::int64_t begin_ns, std::int64_t end_ns);
  int count() const { return static_cast<int>(busy_until_.size()); }

 private:
  std::vector<std::int64_t> busy_until_;
};

}  // namespace dtrun::base
