#include "move/trace_text.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "dtrun/base/trace_file.h"

namespace dtrun::dtensor {
namespace {

namespace json = boost::json;

constexpr int kComputing = 1;

std::int64_t nanoseconds(double microseconds) {
  return std::llround(microseconds * 1000);
}

std::string line_of(const TraceEvent& event, int rank, int thread) {
  json::object facts;
  if (!event.section.empty()) facts["module"] = event.section;
  if (event.is_communication()) {
    facts["bytes sent"] = event.bytes;
    facts["ranks"] = event.ranks;
    facts["blocking"] = event.blocks;
    if (!event.cause.empty()) facts["for"] = event.cause;
  }
  return base::trace_slice({.name = event.name,
                            .category = event.category,
                            .process = rank,
                            .thread = thread,
                            .begin_ns = nanoseconds(event.begin),
                            .end_ns = nanoseconds(event.end),
                            .arguments = json::serialize(facts)});
}

using Stretch = std::pair<double, double>;

/// Apart from each other, in order.
std::vector<Stretch> joined(std::vector<Stretch> all) {
  std::sort(all.begin(), all.end());
  std::vector<Stretch> apart;
  for (const Stretch& one : all) {
    if (!apart.empty() && one.first <= apart.back().second) {
      apart.back().second = std::max(apart.back().second, one.second);
    } else {
      apart.push_back(one);
    }
  }
  return apart;
}

double length_of(const std::vector<Stretch>& apart) {
  double length = 0;
  for (const Stretch& one : apart) length += one.second - one.first;
  return length;
}

/// Of what both have.
std::vector<Stretch> common(const std::vector<Stretch>& a, const std::vector<Stretch>& b) {
  std::vector<Stretch> both;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const double begin = std::max(a[i].first, b[k].first);
    const double end = std::min(a[i].second, b[k].second);
    if (begin < end) both.emplace_back(begin, end);
    if (a[i].second < b[k].second) {
      ++i;
    } else {
      ++k;
    }
  }
  return both;
}

}  // namespace

std::string trace_lines(const std::vector<TraceEvent>& events, int rank) {
  // What is communicated at the same time has threads of its own.
  base::TraceLanes lanes;
  std::string text =
      base::trace_name("process_name", "rank " + std::to_string(rank), rank, kComputing);
  text += ",\n" + base::trace_name("thread_name", "compute", rank, kComputing);
  for (const TraceEvent& event : events) {
    const int lane = event.is_communication()
                         ? 1 + lanes.take(nanoseconds(event.begin), nanoseconds(event.end))
                         : 0;
    text += ",\n" + line_of(event, rank, kComputing + lane);
  }
  for (int lane = 1; lane <= lanes.count(); ++lane) {
    text += ",\n" + base::trace_name("thread_name", "communication " + std::to_string(lane), rank,
                                     kComputing + lane);
  }
  return text;
}

Overlap overlap_of(const std::vector<TraceEvent>& events) {
  std::vector<Stretch> communicating, computing, waiting;
  for (const TraceEvent& event : events) {
    const Stretch stretch{event.begin, event.end};
    if (event.is_communication()) communicating.push_back(stretch);
    if (event.category == "wait" || event.blocks) waiting.push_back(stretch);
    if (event.category == "op" || event.category == "backward" || event.category == "step")
      computing.push_back(stretch);
  }
  const std::vector<Stretch> all = joined(std::move(communicating));
  const std::vector<Stretch> together = common(all, joined(std::move(computing)));
  const std::vector<Stretch> idle = common(together, joined(std::move(waiting)));
  return {length_of(together) - length_of(idle), length_of(all)};
}

}  // namespace dtrun::dtensor
