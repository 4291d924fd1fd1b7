#include "move/trace_text.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <utility>

namespace dtrun::dtensor {
namespace {

namespace json = boost::json;

constexpr int kComputing = 1;

/// Threads for communications: what goes on at the same time has one of its own.
class Lanes {
 public:
  int take(const TraceEvent& event) {
    const auto is_free = [&](double busy_until) { return busy_until <= event.begin; };
    auto lane = std::find_if(busy_until_.begin(), busy_until_.end(), is_free);
    if (lane == busy_until_.end()) lane = busy_until_.insert(busy_until_.end(), 0);
    *lane = event.end;
    return kComputing + 1 + static_cast<int>(lane - busy_until_.begin());
  }
  int count() const { return static_cast<int>(busy_until_.size()); }

 private:
  std::vector<double> busy_until_;
};

std::string name_line(const char* what, const std::string& name, int rank, int thread) {
  return json::serialize(json::object{{"ph", "M"},
                                      {"name", what},
                                      {"pid", rank},
                                      {"tid", thread},
                                      {"args", json::object{{"name", name}}}});
}

std::string event_line(const TraceEvent& event, int rank, int thread) {
  json::object facts;
  if (!event.section.empty()) facts["module"] = event.section;
  if (event.is_communication()) {
    facts["bytes sent"] = event.bytes;
    facts["ranks"] = event.ranks;
    facts["blocking"] = event.blocks;
    if (!event.cause.empty()) facts["for"] = event.cause;
  }
  return json::serialize(json::object{{"ph", "X"},
                                      {"name", event.name},
                                      {"cat", event.category},
                                      {"pid", rank},
                                      {"tid", thread},
                                      {"ts", event.begin},
                                      {"dur", event.end - event.begin},
                                      {"args", std::move(facts)}});
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
  Lanes lanes;
  std::string text = name_line("process_name", "rank " + std::to_string(rank), rank, kComputing);
  text += ",\n" + name_line("thread_name", "compute", rank, kComputing);
  for (const TraceEvent& event : events) {
    const int thread = event.is_communication() ? lanes.take(event) : kComputing;
    text += ",\n" + event_line(event, rank, thread);
  }
  for (int lane = 1; lane <= lanes.count(); ++lane) {
    text += ",\n" + name_line("thread_name", "communication " + std::to_string(lane), rank,
                              kComputing + lane);
  }
  return text;
}

std::string trace_file(const std::vector<std::string>& lines_of_ranks) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (std::size_t i = 0; i < lines_of_ranks.size(); ++i)
    text += (i == 0 ? "" : ",\n") + lines_of_ranks[i];
  return text + "\n]}\n";
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
