#include "dtrun/rendezvous/flight_trace.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/trace_file.h"
#include "job/trace_calls.h"

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;
using base::json_text;
namespace json = boost::json;

std::int64_t now_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// A rank of a trace as lines: its threads, and where each operation's slice lies.
class RankLines {
 public:
  RankLines(const RankTrace& rank, std::size_t index, const TraceCalls& calls)
      : rank_(rank), index_(index), calls_(calls) {}

  struct Timed {
    std::int64_t at_ns;
    int order;  ///< of what has the same time: slices before arrows
    std::string line;
  };

  void write(std::vector<std::string>& heads, std::vector<Timed>& events) {
    const auto text = [&](std::string_view name) {
      heads.push_back(base::trace_name("process_name", name, rank_.rank, 0));
    };
    text(fmt::format("rank {} (pid {} on node {})", rank_.rank, rank_.pid, rank_.node));
    // TraceLanes takes slices in the order of their beginnings.
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < rank_.operations.size(); ++i)
      if (is_traced(rank_.operations[i])) order.push_back(i);
    std::ranges::stable_sort(
        order, {}, [&](std::size_t i) { return rank_.operations[i].operation.started_ns; });
    for (const std::size_t i : order) {
      const HistoryEntry& entry = rank_.operations[i];
      const int thread = thread_of(entry, heads);
      const std::int64_t begin = entry.operation.started_ns, end = end_of(entry, rank_.until_ns);
      const char* const category = is_message(entry) ? "message" : "collective";
      events.push_back({begin, 0,
                        base::trace_slice({.name = entry.operation.name,
                                           .category = category,
                                           .process = rank_.rank,
                                           .thread = thread,
                                           .begin_ns = begin,
                                           .end_ns = end,
                                           .arguments = arguments_of(entry, i)})});
      // Perfetto joins parts that have one id, category and name: a send and its receive, too.
      if (const std::optional<CallPart> part = calls_.part_of({index_, i}))
        events.push_back({part->at_ns, 1,
                          base::trace_arrow({.part = part->arrow,
                                             .id = part->call,
                                             .name = category,
                                             .process = rank_.rank,
                                             .thread = thread,
                                             .at_ns = part->at_ns})});
    }
  }

 private:
  struct Track {
    int number = 0;
    base::TraceLanes lanes;
    std::vector<int> threads;  ///< of the lanes
  };

  int thread_of(const HistoryEntry& entry, std::vector<std::string>& heads) {
    Track& track = tracks_[{entry.operation.group, entry.members_hash}];
    if (track.number == 0) track.number = static_cast<int>(tracks_.size());
    const auto lane = static_cast<std::size_t>(
        track.lanes.take(entry.operation.started_ns, end_of(entry, rank_.until_ns)));
    if (lane < track.threads.size()) return track.threads[lane];
    // Perfetto sorts threads by this number: by group, then by lane. With more lanes only the order
    // on the screen would suffer.
    constexpr int kMostLanes = 1000;
    const int thread = ++threads_;
    track.threads.push_back(thread);
    const std::string name = lane == 0 ? std::string(entry.operation.group)
                                       : fmt::format("{} ({})", entry.operation.group, lane + 1);
    heads.push_back(base::trace_name("thread_name", name, rank_.rank, thread));
    heads.push_back(base::trace_thread_order(rank_.rank, thread,
                                             track.number * kMostLanes + static_cast<int>(lane)));
    return thread;
  }

  std::string arguments_of(const HistoryEntry& entry, std::size_t operation) const {
    const Operation& own = entry.operation;
    std::string text = fmt::format(
        R"({{"group":{},"sequence":{},"state":"{}","call_site":{},"dtype":{},"elements":{},)"
        R"("bytes":{},"reduce_op":{},"{}":{},"tag":{},"waiting_for":{},"group_rank":{},)"
        R"("group_size":{},"first_rank":{},"rank_stride":{},"members_hash":{})",
        json_text(own.group), own.sequence, state_name(entry), json_text(entry.call_site),
        json_text(entry.dtype), entry.elements, own.bytes, json_text(entry.reduce_op),
        is_message(entry) ? "peer" : "root", entry.root, entry.tag, own.waiting_for,
        entry.group_rank, entry.group_size, entry.first_rank, entry.rank_stride,
        entry.members_hash);
    if (const std::optional<CallPart> part = calls_.part_of({index_, operation})) {
      text += fmt::format(R"(,"ranks_here":{},"came_last":{},"came_before_the_last_us":{:.3f})",
                          part->ranks, part->last_rank,
                          static_cast<double>(part->before_last_ns) / 1000);
      if (!part->not_come.empty())
        text += fmt::format(R"(,"not_come":[{}])", fmt::join(part->not_come, ","));
    }
    return text + "}";
  }

  const RankTrace& rank_;
  const std::size_t index_;
  const TraceCalls& calls_;
  std::map<std::pair<std::string, std::uint32_t>, Track> tracks_;
  int threads_ = 0;
};

std::string facts_of(const FlightTrace& trace) {
  std::vector<std::string> clocks, ranks;
  for (const TraceClock& clock : trace.clocks)
    clocks.push_back(
        fmt::format(R"({{"node":{},"epoch_ns":{},"shift_ns":{},"uncertainty_ns":{}}})", clock.node,
                    clock.epoch_ns, clock.shift_ns,
                    clock.uncertainty_ns ? std::to_string(*clock.uncertainty_ns) : "null"));
  for (const RankTrace& rank : trace.ranks)
    ranks.push_back(
        fmt::format(R"({{"rank":{},"node":{},"pid":{},"operations_begun":{},"until_ns":{}}})",
                    rank.rank, rank.node, rank.pid, rank.begun, rank.until_ns));
  return fmt::format(R"("otherData": {{"format":"{}","job":{},"round":{},"world_size":{},)"
                     R"("cause":{},"clocks":[{}],"ranks":[{}]}}, )",
                     kTraceFormat, json_text(trace.job), trace.round, trace.world_size,
                     json_text(trace.cause), fmt::join(clocks, ","), fmt::join(ranks, ","));
}

/// An object of a trace's file.
class TraceReader {
 public:
  TraceReader(const json::object& object, const std::string& source)
      : object_(object), source_(source) {}

  static Error malformed(const std::string& source, const std::string& why) {
    return Error(ErrorCode::kProtocol, source + " is no trace of a job", why,
                 "dtrun --trace=FILE writes such files");
  }

  template <typename Number>
  Number number(const char* key) const {
    boost::system::error_code error;
    const auto result = value(key).to_number<Number>(error);
    if (error) throw malformed(source_, fmt::format("{} is no such number", key));
    return result;
  }
  std::string text(const char* key) const {
    const json::value& found = value(key);
    if (!found.is_string()) throw malformed(source_, fmt::format("{} is no text", key));
    return {found.get_string().data(), found.get_string().size()};
  }
  template <std::size_t N>
  void text(const char* key, char (&to)[N]) const {
    const std::string found = text(key);
    // The texts of an entry have a fixed size and end with a 0, which is there already: a longer
    // one is cut.
    found.copy(to, N - 1);
  }
  const json::array& list(const char* key) const {
    const json::value& found = value(key);
    if (!found.is_array()) throw malformed(source_, fmt::format("{} is no list", key));
    return found.get_array();
  }
  TraceReader object(const char* key) const { return in(value(key)); }
  TraceReader in(const json::value& member) const {
    if (!member.is_object()) throw malformed(source_, "an entry of a list is no object");
    return {member.get_object(), source_};
  }
  bool has_number(const char* key) const {
    const json::value* const found = object_.if_contains(key);
    return found != nullptr && found->is_number();
  }

 private:
  const json::value& value(const char* key) const {
    const json::value* const found = object_.if_contains(key);
    if (found == nullptr) throw malformed(source_, fmt::format("there is no {}", key));
    return *found;
  }
  const json::object& object_;
  const std::string& source_;
};

/// From microseconds.
std::int64_t nanoseconds(double microseconds) {
  return std::llround(microseconds * 1000);
}

HistoryEntry entry_of(const TraceReader& event) {
  const TraceReader facts = event.object("args");
  HistoryEntry entry;
  event.text("name", entry.operation.name);
  facts.text("group", entry.operation.group);
  facts.text("call_site", entry.call_site);
  facts.text("dtype", entry.dtype);
  facts.text("reduce_op", entry.reduce_op);
  entry.operation.sequence = facts.number<std::uint64_t>("sequence");
  entry.operation.bytes = facts.number<std::uint64_t>("bytes");
  entry.operation.waiting_for = facts.number<std::int32_t>("waiting_for");
  entry.elements = facts.number<std::uint64_t>("elements");
  entry.root = facts.number<std::int32_t>(is_message(entry) ? "peer" : "root");
  entry.tag = facts.number<std::uint32_t>("tag");
  entry.group_rank = facts.number<std::int32_t>("group_rank");
  entry.group_size = facts.number<std::int32_t>("group_size");
  entry.first_rank = facts.number<std::int32_t>("first_rank");
  entry.rank_stride = facts.number<std::int32_t>("rank_stride");
  entry.members_hash = facts.number<std::uint32_t>("members_hash");
  const std::string state = facts.text("state");
  entry.operation.started_ns = nanoseconds(event.number<double>("ts"));
  if (state != "running")
    entry.operation.ended_ns =
        entry.operation.started_ns + nanoseconds(event.number<double>("dur"));
  entry.operation.failed = state == "failed" ? 1 : 0;
  return entry;
}

FlightTrace heads_of(const TraceReader& facts) {
  FlightTrace trace;
  trace.job = facts.text("job");
  trace.round = facts.number<int>("round");
  trace.world_size = facts.number<int>("world_size");
  trace.cause = facts.text("cause");
  for (const json::value& value : facts.list("clocks")) {
    const TraceReader clock = facts.in(value);
    TraceClock& made = trace.clocks.emplace_back();
    made.node = clock.number<int>("node");
    made.epoch_ns = clock.number<std::int64_t>("epoch_ns");
    made.shift_ns = clock.number<std::int64_t>("shift_ns");
    if (clock.has_number("uncertainty_ns"))
      made.uncertainty_ns = clock.number<std::int64_t>("uncertainty_ns");
  }
  for (const json::value& value : facts.list("ranks")) {
    const TraceReader rank = facts.in(value);
    RankTrace& made = trace.ranks.emplace_back();
    made.rank = rank.number<int>("rank");
    made.node = rank.number<int>("node");
    made.pid = rank.number<int>("pid");
    made.begun = rank.number<std::uint64_t>("operations_begun");
    made.until_ns = rank.number<std::int64_t>("until_ns");
  }
  return trace;
}

}  // namespace

std::size_t trace_length(int local_ranks) {
  // 16384 entries take 3 MiB. A node with more than 8 ranks keeps as many as one with 8.
  constexpr std::size_t kOfANode = 131072, kMost = 16384, kLeast = 1024;
  return std::clamp(kOfANode / static_cast<std::size_t>(std::max(local_ranks, 1)), kLeast, kMost);
}

FlightTrace read_trace(const JobPage& page) {
  FlightTrace trace;
  trace.cause = page.describe_cause();
  const std::int64_t now = now_ns(CLOCK_MONOTONIC);
  trace.clocks = {{.epoch_ns = now_ns(CLOCK_REALTIME) - now, .uncertainty_ns = {}}};
  for (int i = 0; i < page.slot_count(); ++i) {
    const RankSlot& slot = page.slot(i);
    RankTrace rank;
    rank.rank = slot.global_rank.load();
    if (rank.rank < 0) continue;  // it was never started
    rank.pid = slot.pid.load();
    rank.begun = slot.operations.load();
    rank.until_ns = now;
    rank.operations = page.history(i, std::numeric_limits<std::size_t>::max());
    trace.ranks.push_back(std::move(rank));
  }
  return trace;
}

std::string to_json(const FlightTrace& trace) {
  const TraceCalls calls(trace);
  std::vector<std::string> lines;
  std::vector<RankLines::Timed> events;
  for (std::size_t i = 0; i < trace.ranks.size(); ++i)
    RankLines(trace.ranks[i], i, calls).write(lines, events);
  std::ranges::stable_sort(events, {}, [](const RankLines::Timed& event) {
    return std::pair(event.at_ns, event.order);
  });
  lines.reserve(lines.size() + events.size());
  for (RankLines::Timed& event : events) lines.push_back(std::move(event.line));
  return base::trace_file(lines, facts_of(trace));
}

FlightTrace flight_trace_of(const json::value& document, const std::string& source) {
  const json::object* const whole = document.if_object();
  if (whole == nullptr || !whole->contains("otherData"))
    throw TraceReader::malformed(source, "it has no otherData");
  const TraceReader file(*whole, source);
  const TraceReader facts = file.object("otherData");
  if (const std::string format = facts.text("format"); format != kTraceFormat)
    throw TraceReader::malformed(source,
                                 fmt::format("its format is '{}', not '{}'", format, kTraceFormat));
  FlightTrace trace = heads_of(facts);
  std::map<int, RankTrace*> ranks;
  for (RankTrace& rank : trace.ranks) ranks[rank.rank] = &rank;
  for (const json::value& value : file.list("traceEvents")) {
    const TraceReader event = file.in(value);
    // Slices alone hold operations. Names and arrows are made anew from those when the trace is
    // written again.
    if (event.text("ph") != "X") continue;
    // A trace has a rank's number as its process (RankLines::write).
    const auto rank = ranks.find(event.number<int>("pid"));
    if (rank == ranks.end())
      throw TraceReader::malformed(source, "an event is of a rank that otherData does not name");
    rank->second->operations.push_back(entry_of(event));
  }
  return trace;
}

}  // namespace dtrun::rendezvous
