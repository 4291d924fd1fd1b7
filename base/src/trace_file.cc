#include "dtrun/base/trace_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>

#include "dtrun/base/utf8.h"

namespace dtrun::base {
namespace {

/// Chrome's times are microseconds.
std::string microseconds(std::int64_t ns) {
  const std::int64_t whole = ns / 1000, rest = ns % 1000;
  return fmt::format("{}{}.{:03}", ns < 0 && whole == 0 ? "-" : "", whole, rest < 0 ? -rest : rest);
}

}  // namespace

std::string json_text(std::string_view text) {
  const std::string clean = as_utf8(text);
  return boost::json::serialize(
      boost::json::string(boost::json::string_view(clean.data(), clean.size())));
}

std::string trace_slice(const TraceSlice& slice) {
  return fmt::format(
      R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{}}})",
      json_text(slice.name), json_text(slice.category), slice.process, slice.thread,
      microseconds(slice.begin_ns), microseconds(slice.end_ns - slice.begin_ns), slice.arguments);
}

std::string trace_arrow(const TraceArrow& arrow) {
  return fmt::format(R"({{"ph":"{}","id":{},"name":{},"cat":"flow","pid":{},"tid":{},"ts":{}{}}})",
                     static_cast<char>(arrow.part), arrow.id, json_text(arrow.name), arrow.process,
                     arrow.thread, microseconds(arrow.at_ns),
                     arrow.part == TraceArrow::Part::end ? R"(,"bp":"e")" : "");
}

std::string trace_name(std::string_view what, std::string_view name, int process, int thread) {
  return fmt::format(R"({{"ph":"M","name":{},"pid":{},"tid":{},"args":{{"name":{}}}}})",
                     json_text(what), process, thread, json_text(name));
}

std::string trace_thread_order(int process, int thread, int place) {
  return fmt::format(
      R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
      process, thread, place);
}

std::string trace_file(const std::vector<std::string>& lines, std::string_view facts) {
  std::size_t size = facts.size() + 64;
  for (const std::string& line : lines) size += line.size() + 2;
  std::string text;
  text.reserve(size);
  text += fmt::format("{{\"displayTimeUnit\": \"ns\", {}\"traceEvents\": [\n", facts);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += ",\n";
    text += lines[i];
  }
  return text + "\n]}\n";
}

int TraceLanes::take(std::int64_t begin_ns, std::int64_t end_ns) {
  auto lane =
      std::ranges::find_if(busy_until_, [&](std::int64_t busy) { return busy <= begin_ns; });
  if (lane == busy_until_.end()) lane = busy_until_.insert(busy_until_.end(), 0);
  *lane = end_ns;
  return static_cast<int>(lane - busy_until_.begin());
}

}  // namespace dtrun::base
