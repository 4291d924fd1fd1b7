#include "job/trace_calls.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace dtrun::rendezvous {
namespace {

using Arrow = base::TraceArrow::Part;

/// In these each rank needs something of every other.
constexpr std::string_view kMeetings[] = {"all_reduce", "all_gather", "reduce_scatter", "barrier"};

/// Of a group without an order of ranks that a record could say.
constexpr int kMostOfAGroup = 1 << 20;

}  // namespace

bool is_message(const HistoryEntry& entry) {
  const std::string_view name = entry.operation.name;
  return name == "send" || name == "recv";
}

bool is_traced(const HistoryEntry& entry) {
  return entry.operation.started_ns > 0 && entry.operation.name[0] != '\0';
}

std::string_view state_name(const HistoryEntry& entry) {
  if (entry.operation.ended_ns == 0) return "running";
  return entry.operation.failed != 0 ? "failed" : "done";
}

std::int64_t end_of(const HistoryEntry& entry, std::int64_t until_ns) {
  const std::int64_t end = entry.operation.ended_ns == 0 ? until_ns : entry.operation.ended_ns;
  return std::max(end, entry.operation.started_ns);
}

TraceCalls::TraceCalls(const FlightTrace& trace) : trace_(trace) {
  find_collectives();
  find_messages();
}

std::optional<CallPart> TraceCalls::part_of(const TracePlace& place) const {
  const auto found = parts_.find(place);
  return found == parts_.end() ? std::nullopt : std::optional(found->second);
}

void TraceCalls::find_collectives() {
  // A program may make a group of one name and members several times, and then its numbers begin
  // anew: the times that a rank has had a number tell them apart.
  using Key = std::tuple<std::string, std::uint32_t, std::uint64_t, std::string, int>;
  std::map<Key, Places> calls;
  for (std::size_t rank = 0; rank < trace_.ranks.size(); ++rank) {
    std::map<Key, int> times;
    const std::vector<HistoryEntry>& operations = trace_.ranks[rank].operations;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const HistoryEntry& one = operations[i];
      if (!is_traced(one) || is_message(one)) continue;
      Key key{one.operation.group, one.members_hash, one.operation.sequence, one.operation.name, 0};
      const int time = times[key]++;
      std::get<4>(key) = time;
      calls[key].push_back({rank, i});
    }
  }
  for (auto& [key, places] : calls)
    if (places.size() > 1) add_call(std::move(places));
}

void TraceCalls::add_call(Places places) {
  const auto begin = [&](const TracePlace& place) { return entry(place).operation.started_ns; };
  std::ranges::stable_sort(places, {}, begin);
  const TracePlace& last = places.back();
  const bool is_done = std::ranges::all_of(
      places, [&](const TracePlace& place) { return state_name(entry(place)) == "done"; });
  const std::vector<int> missing = is_done ? std::vector<int>() : not_come(places);
  ++calls_;
  for (const TracePlace& place : places) {
    CallPart part;
    part.call = calls_;
    part.arrow = place == places.front() ? Arrow::start : place == last ? Arrow::end : Arrow::step;
    part.at_ns = begin(place);
    part.ranks = static_cast<int>(places.size());
    part.last_rank = trace_.ranks[last.rank].rank;
    part.before_last_ns = begin(last) - begin(place);
    if (state_name(entry(place)) != "done") part.not_come = missing;
    parts_.emplace(place, std::move(part));
  }
  collectives_.push_back(std::move(places));
}

/// Of the members that the trace has, those that are not in the call.
std::vector<int> TraceCalls::not_come(const Places& places) const {
  const HistoryEntry& one = entry(places.front());
  if (one.group_size > kMostOfAGroup || (one.rank_stride == 0 && one.group_size > 1)) return {};
  std::set<int> there, come;
  for (const RankTrace& rank : trace_.ranks) there.insert(rank.rank);
  for (const TracePlace& place : places) come.insert(trace_.ranks[place.rank].rank);
  std::vector<int> missing;
  for (int i = 0; i < one.group_size; ++i) {
    const auto member = static_cast<int>(one.first_rank + std::int64_t{i} * one.rank_stride);
    if (there.contains(member) && !come.contains(member)) missing.push_back(member);
  }
  return missing;
}

// Messages from one rank to another with one tag come in the order of the sends. Where a rank has
// lost its first operations, nobody knows which of its messages is which.
void TraceCalls::find_messages() {
  using Way = std::tuple<std::string, std::uint32_t, int, int, std::uint32_t>;
  std::map<Way, std::pair<Places, Places>> ways;
  for (std::size_t rank = 0; rank < trace_.ranks.size(); ++rank) {
    const std::vector<HistoryEntry>& operations = trace_.ranks[rank].operations;
    if (trace_.ranks[rank].begun > operations.size()) continue;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const HistoryEntry& one = operations[i];
      // A receive from any rank does not say from which it came.
      if (!is_traced(one) || !is_message(one) || one.root < 0) continue;
      const bool sends = std::string_view(one.operation.name) == "send";
      const int from = sends ? one.group_rank : one.root, to = sends ? one.root : one.group_rank;
      auto& [sent, received] = ways[{one.operation.group, one.members_hash, from, to, one.tag}];
      (sends ? sent : received).push_back({rank, i});
    }
  }
  for (const auto& [way, both] : ways) {
    const auto& [sent, received] = both;
    for (std::size_t i = 0; i < std::min(sent.size(), received.size()); ++i)
      add_message(sent[i], received[i]);
  }
}

void TraceCalls::add_message(const TracePlace& send, const TracePlace& receive) {
  const std::int64_t sent = entry(send).operation.started_ns;
  const std::int64_t posted = entry(receive).operation.started_ns;
  const std::int64_t came = end_of(entry(receive), trace_.ranks[receive.rank].until_ns);
  const std::int64_t last = std::max(sent, posted);
  CallPart part;
  part.call = ++calls_;
  part.ranks = 2;
  part.last_rank = trace_.ranks[sent > posted ? send.rank : receive.rank].rank;
  part.arrow = Arrow::start;
  part.at_ns = sent;
  part.before_last_ns = last - sent;
  parts_.emplace(send, part);
  part.arrow = Arrow::end;
  // The receive may have been posted ahead: the arrow ends within it.
  part.at_ns = std::clamp(sent, posted, std::max(posted, came));
  part.before_last_ns = last - posted;
  parts_.emplace(receive, std::move(part));
}

std::vector<std::vector<TracePlace>> TraceCalls::meetings() const {
  std::vector<Places> result;
  for (const Places& places : collectives_) {
    const HistoryEntry& first = entry(places.front());
    const bool meets =
        std::ranges::find(kMeetings, std::string_view(first.operation.name)) != std::end(kMeetings);
    const bool is_done = std::ranges::all_of(
        places, [&](const TracePlace& place) { return state_name(entry(place)) == "done"; });
    if (meets && is_done) result.push_back(places);
  }
  return result;
}

}  // namespace dtrun::rendezvous
