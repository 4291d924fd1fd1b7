#include "dtrun/rendezvous/flight_explanation.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace dtrun::rendezvous {
namespace {

using Kind = FlightFinding::Kind;
using Flights = std::map<int, RankFlight>;

/// Of a group without an order of ranks that a record could say.
constexpr int kMostMembers = 1 << 20;

bool is_open(const FlightOperation& operation) {
  return operation.state != FlightState::done;
}

/// What members must agree on. Counts of parts differ between ranks where they may.
auto signature(const FlightOperation& operation) {
  return std::tie(operation.name, operation.dtype, operation.reduce_op, operation.elements,
                  operation.root);
}

std::string seconds_text(double seconds) {
  return seconds < 120 ? fmt::format("{:.1f} s", std::max(seconds, 0.0))
                       : fmt::format("{:.0f} min", seconds / 60);
}

/// Of the groups that a process has made under one name, one after the other, only the last one
/// counts: each begins with number 1.
void forget_former_groups(RankFlight& flight) {
  std::map<std::string, std::uint64_t> least;
  std::vector<FlightOperation> kept;
  for (auto operation = flight.operations.rbegin(); operation != flight.operations.rend();
       ++operation) {
    if (!operation->is_message()) {
      const auto [at, is_new] = least.emplace(operation->group, operation->sequence);
      if (!is_new && operation->sequence >= at->second) continue;
      at->second = operation->sequence;
    }
    kept.push_back(std::move(*operation));
  }
  std::reverse(kept.begin(), kept.end());
  flight.operations = std::move(kept);
}

/// Groups of one split share a name, and long names are cut: their members tell them apart.
void name_groups_apart(Flights& flights) {
  std::map<std::string, std::set<std::uint32_t>> hashes;
  for (const auto& [rank, flight] : flights)
    for (const FlightOperation& operation : flight.operations)
      hashes[operation.group].insert(operation.members_hash);
  std::map<std::pair<std::string, std::uint32_t>, std::string> names;
  for (auto& [rank, flight] : flights)
    for (FlightOperation& operation : flight.operations) {
      if (hashes.find(operation.group)->second.size() < 2) continue;
      std::string& name = names[{operation.group, operation.members_hash}];
      if (name.empty()) {
        const std::vector<int> members = operation.members.all(kMostMembers);
        name = members.empty() ? fmt::format("{} ({:08x})", operation.group, operation.members_hash)
                               : fmt::format("{} of {}", operation.group, rank_list_text(members));
      }
      operation.group = name;
    }
}

/// Where somebody waits: one collective of one group.
struct StuckPlace {
  std::string group;
  std::uint64_t sequence = 0;
  std::vector<int> members = {};
  std::map<int, const FlightOperation*> came = {};  ///< by rank
  std::vector<int> waiting = {};                    ///< came, and it is not over for them
  std::vector<int> missing = {};                    ///< have not come; there is a record of them
  std::vector<int> unknown = {};                    ///< there is none

  const FlightOperation& call() const { return *came.at(waiting.front()); }
};

class Explanation {
 public:
  Explanation(Flights flights, int world_size, double now)
      : flights_(std::move(flights)), world_size_(world_size), now_(now) {
    find_places();
    find_messages();
  }

  std::vector<FlightFinding> findings() const {
    std::vector<FlightFinding> result;
    for (const StuckPlace& place : places_) add_findings(place, result);
    for (const auto& [rank, message] : messages_) add_message(rank, *message, result);
    add_awaited(result);
    add_circle(result);
    add_behind(result);
    std::stable_sort(result.begin(), result.end(),
                     [](const auto& a, const auto& b) { return a.kind < b.kind; });
    return result;
  }

 private:
  /// The first place of each group in which somebody waits; what comes later follows from it.
  void find_places() {
    std::map<std::string, std::uint64_t> first;
    for (const auto& [rank, flight] : flights_)
      for (const FlightOperation& operation : flight.operations) {
        if (operation.is_message() || !is_open(operation)) continue;
        const auto [at, is_new] = first.emplace(operation.group, operation.sequence);
        if (!is_new) at->second = std::min(at->second, operation.sequence);
      }
    for (const auto& [group, sequence] : first)
      if (StuckPlace place = place_of(group, sequence); !place.waiting.empty())
        places_.push_back(std::move(place));
  }

  StuckPlace place_of(const std::string& group, std::uint64_t sequence) const {
    StuckPlace place{.group = group, .sequence = sequence, .members = members_of(group)};
    for (const int member : place.members) {
      const auto flight = flights_.find(member);
      if (flight == flights_.end()) {
        place.unknown.push_back(member);
        continue;
      }
      const FlightOperation* call = nullptr;
      bool is_past = false;
      for (const FlightOperation& operation : flight->second.operations) {
        if (operation.group != group || operation.is_message()) continue;
        if (operation.sequence == sequence) call = &operation;
        is_past |= operation.sequence > sequence;
      }
      if (call != nullptr) place.came[member] = call;
      if (call != nullptr && is_open(*call)) place.waiting.push_back(member);
      if (call == nullptr && !is_past) place.missing.push_back(member);
    }
    return place;
  }

  /// As the records say; else all ranks that have called something there.
  std::vector<int> members_of(const std::string& group) const {
    std::set<int> callers;
    for (const auto& [rank, flight] : flights_)
      for (const FlightOperation& operation : flight.operations) {
        if (operation.group != group) continue;
        const int most = world_size_ > 0 ? world_size_ : kMostMembers;
        if (std::vector<int> members = operation.members.all(most); !members.empty())
          return members;
        callers.insert(rank);
      }
    if (group == "world" && world_size_ > 0) {
      std::vector<int> all(static_cast<std::size_t>(world_size_));
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    return {callers.begin(), callers.end()};
  }

  void find_messages() {
    for (const auto& [rank, flight] : flights_)
      for (const FlightOperation& operation : flight.operations)
        if (operation.is_message() && is_open(operation)) {
          messages_.emplace_back(rank, &operation);
          break;
        }
  }

  void add_findings(const StuckPlace& place, std::vector<FlightFinding>& result) const {
    if (FlightFinding differing = differing_calls(place); !differing.ranks.empty())
      return result.push_back(std::move(differing));
    std::vector<int> idle, busy;
    for (const int rank : place.missing) (waits(rank) ? busy : idle).push_back(rank);
    const std::string what =
        fmt::format("{}: {} {}", describe(place.call()), rank_list_text(place.waiting),
                    wait_text(place.waiting, place.call()));
    const auto add = [&](Kind kind, const std::vector<int>& ranks, const std::string& text) {
      result.push_back({kind, text, ranks, place.group, place.sequence, since(place)});
    };
    if (!idle.empty()) add(Kind::missing, idle, what + absence_text(idle));
    if (!busy.empty()) add(Kind::waiting, busy, what + absence_text(busy));
    if (!place.unknown.empty())
      add(Kind::unknown, place.unknown,
          fmt::format("{}; there is no record of {}", what, rank_list_text(place.unknown)));
    if (idle.empty() && busy.empty() && place.unknown.empty())
      add(Kind::together, place.waiting,
          what +
              "; all members have come, so either they have only just met, or the transport "
              "between them stands still");
  }

  FlightFinding differing_calls(const StuckPlace& place) const {
    std::map<std::decay_t<decltype(signature(place.call()))>, std::vector<int>> sides;
    for (const auto& [rank, call] : place.came) sides[signature(*call)].push_back(rank);
    FlightFinding finding{Kind::differing, "", {}, place.group, place.sequence, since(place)};
    if (sides.size() < 2) return finding;
    std::vector<std::vector<int>> groups;
    for (auto& [call, ranks] : sides) groups.push_back(std::move(ranks));
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
    finding.text = fmt::format("collective #{} of group '{}' is not the same on all ranks",
                               place.sequence, place.group);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      finding.text += fmt::format("; {} called {}", rank_list_text(groups[i]),
                                  describe(*place.came.at(groups[i].front())));
      if (i > 0) finding.ranks.insert(finding.ranks.end(), groups[i].begin(), groups[i].end());
    }
    return finding;
  }

  /// Ranks for which those of another node wait. Where one of these records waits, too, that says
  /// more.
  void add_awaited(std::vector<FlightFinding>& result) const {
    for (const auto& [rank, flight] : flights_) {
      if (!flight.awaited) continue;
      const RemoteWait& wait = *flight.awaited;
      const bool is_known = std::ranges::any_of(places_, [&](const StuckPlace& place) {
        return place.group == wait.group && place.sequence == wait.sequence;
      });
      if (is_known) continue;
      result.push_back(
          {waits(rank) ? Kind::waiting : Kind::missing,
           fmt::format("{} #{} of group '{}': rank {}, on another node, has waited for {}{}",
                       wait.name, wait.sequence, wait.group, wait.rank,
                       seconds_text(std::max(0.0, now_ - wait.since)), absence_text({rank})),
           {rank},
           wait.group,
           wait.sequence,
           wait.since});
    }
  }

  void add_message(int rank, const FlightOperation& message,
                   std::vector<FlightFinding>& result) const {
    const int peer = peer_of(message);
    const std::string text =
        fmt::format("{}: rank {} {}", describe(message), rank, wait_text({rank}, message));
    const auto kind = peer < 0 || !flights_.contains(peer) ? Kind::unknown
                      : waits(peer)                        ? Kind::waiting
                                                           : Kind::missing;
    const std::string of_peer = peer < 0 ? "; it takes the message of any rank"
                                : kind == Kind::unknown
                                    ? fmt::format("; there is no record of rank {}", peer)
                                    : fmt::format(" for rank {}; {}", peer, doing_text(peer));
    result.push_back({kind, text + of_peer, peer < 0 ? std::vector<int>{} : std::vector<int>{peer},
                      message.group, message.sequence, since(message), true});
  }

  static int peer_of(const FlightOperation& message) {
    if (message.waiting_for >= 0) return message.waiting_for;
    if (message.root < 0) return -1;
    const std::vector<int> members = message.members.all(kMostMembers);
    const auto index = static_cast<std::size_t>(message.root);
    return index < members.size() ? members[index] : -1;
  }

  static double since(const FlightOperation& operation) {
    return operation.state == FlightState::running ? operation.started : 0;
  }
  static double since(const StuckPlace& place) {
    double first = 0;
    for (const int rank : place.waiting) {
      const double started = since(*place.came.at(rank));
      if (started > 0 && (first <= 0 || started < first)) first = started;
    }
    return first;
  }

  /// In an operation that is not over, on its side.
  bool waits(int rank) const { return open_operation(rank) != nullptr; }

  const FlightOperation* open_operation(int rank) const {
    const auto flight = flights_.find(rank);
    if (flight == flights_.end()) return nullptr;
    for (const FlightOperation& operation : flight->second.operations)
      if (is_open(operation)) return &operation;
    return nullptr;
  }

  std::string wait_text(const std::vector<int>& ranks, const FlightOperation& call) const {
    const bool is_one = ranks.size() == 1;
    if (call.state == FlightState::failed) return "waited until it failed";
    const std::string verb = is_one ? "waits" : "wait";
    return call.started > 0 && now_ > call.started
               ? fmt::format("{} for {}", is_one ? "has waited" : "have waited",
                             seconds_text(now_ - call.started))
               : verb;
  }

  std::string absence_text(const std::vector<int>& missing) const {
    constexpr std::size_t kMostDescribed = 4;
    std::string text = fmt::format("; {} {} not come", rank_list_text(missing),
                                   missing.size() == 1 ? "has" : "have");
    for (std::size_t i = 0; i < std::min(missing.size(), kMostDescribed); ++i)
      text += "; " + doing_text(missing[i]);
    if (missing.size() > kMostDescribed)
      text += fmt::format("; and so on for {} more", missing.size() - kMostDescribed);
    return text;
  }

  /// What a rank does instead, or did last.
  std::string doing_text(int rank) const {
    const RankFlight& flight = flights_.at(rank);
    const std::string who = fmt::format("rank {}", rank);
    if (const FlightOperation* open = open_operation(rank))
      return fmt::format("{} is in {}", who, describe(*open));
    const std::string state = flight.state == "left"     ? " has left the group and"
                              : flight.state == "exited" ? " has ended and"
                              : flight.state == "init"   ? " is still joining and"
                                                         : "";
    if (flight.operations.empty()) return fmt::format("{}{} has called nothing", who, state);
    const FlightOperation& last = flight.operations.back();
    const std::string when =
        last.ended && now_ > *last.ended
            ? fmt::format(", over {} before this record", seconds_text(now_ - *last.ended))
            : "";
    return fmt::format("{}{} last called {}{}", who, state, describe(last), when);
  }

  /// Members whose last call of a group is not the group's last one. Where somebody waits there,
  /// that says it already.
  void add_behind(std::vector<FlightFinding>& result) const {
    std::map<std::string, std::map<int, const FlightOperation*>> last;
    for (const auto& [rank, flight] : flights_)
      for (const FlightOperation& operation : flight.operations)
        if (!operation.is_message()) last[operation.group][rank] = &operation;
    for (const StuckPlace& place : places_) last.erase(place.group);
    for (const auto& [group, calls] : last) {
      const auto newest = std::max_element(
          calls.begin(), calls.end(),
          [](const auto& a, const auto& b) { return a.second->sequence < b.second->sequence; });
      std::vector<int> behind;
      for (const int member : members_of(group)) {
        const auto call = calls.find(member);
        const std::uint64_t sequence = call == calls.end() ? 0 : call->second->sequence;
        if (flights_.contains(member) && sequence < newest->second->sequence)
          behind.push_back(member);
      }
      if (behind.empty()) continue;
      result.push_back({Kind::behind,
                        fmt::format("{}: rank {} has called it{}", describe(*newest->second),
                                    newest->first, absence_text(behind)),
                        behind, group, newest->second->sequence, 0});
    }
  }

  /// Whom a rank waits for, where exactly one rank is missed.
  std::map<int, int> edges() const {
    std::map<int, int> result;
    for (const StuckPlace& place : places_)
      for (const int missing : place.missing)
        for (const int waiting : place.waiting) result.emplace(waiting, missing);
    for (const auto& [rank, message] : messages_) {
      if (const int peer = peer_of(*message); peer >= 0) result.emplace(rank, peer);
    }
    return result;
  }

  void add_circle(std::vector<FlightFinding>& result) const {
    const std::map<int, int> next = edges();
    std::set<int> done;
    for (const auto& [start, ignored] : next) {
      std::vector<int> way;
      int rank = start;
      while (next.contains(rank) && !done.contains(rank)) {
        done.insert(rank);
        way.push_back(rank);
        rank = next.at(rank);
      }
      const auto begin = std::find(way.begin(), way.end(), rank);
      if (begin == way.end()) continue;
      const std::vector<int> circle(begin, way.end());
      std::string text = fmt::format("{} wait for one another", rank_list_text(circle));
      for (const int member : circle)
        text += fmt::format("; rank {} waits for rank {} in {}", member, next.at(member),
                            describe(*open_operation(member)));
      // Nobody gets on before the last of them waits.
      const FlightOperation* last = open_operation(circle.front());
      for (const int member : circle)
        if (const auto* const open = open_operation(member); since(*open) > since(*last))
          last = open;
      result.push_back({Kind::circle, text, circle, last->group, last->sequence, since(*last)});
    }
  }

  const Flights flights_;
  const int world_size_;
  const double now_;
  std::vector<StuckPlace> places_;
  std::vector<std::pair<int, const FlightOperation*>> messages_;  ///< the first open one of a rank
};

}  // namespace

std::vector<FlightFinding> explain_flights(std::vector<RankFlight> ranks, int world_size,
                                           double now) {
  Flights flights;
  for (RankFlight& flight : ranks) {
    RankFlight& kept = flights[flight.rank];
    if (kept.rank < 0 || kept.operations.size() < flight.operations.size())
      kept = std::move(flight);
  }
  for (auto& [rank, flight] : flights) forget_former_groups(flight);
  name_groups_apart(flights);
  return Explanation(std::move(flights), world_size, now).findings();
}

std::string describe(const FlightOperation& operation) {
  std::string text =
      fmt::format("{} #{} of group '{}'", operation.name, operation.sequence, operation.group);
  std::vector<std::string> facts;
  if (!operation.dtype.empty())
    facts.push_back(fmt::format("{} x {}", operation.dtype, operation.elements));
  if (!operation.reduce_op.empty()) facts.push_back(operation.reduce_op);
  if (operation.root >= 0)
    facts.push_back(fmt::format("{} {}", operation.is_message() ? "peer" : "root", operation.root));
  if (!facts.empty()) text += fmt::format(" ({})", fmt::join(facts, ", "));
  if (!operation.call_site.empty()) text += " at " + operation.call_site;
  return text;
}

std::string rank_list_text(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    const bool is_range = end - i > 2;
    if (is_range) parts.push_back(fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    for (; !is_range && i < end; ++i) parts.push_back(std::to_string(ranks[i]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

}  // namespace dtrun::rendezvous
