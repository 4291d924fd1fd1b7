#include "ranks/rank_watch.h"

#include <fmt/core.h>

namespace dtrun::launcher {
namespace {

using rendezvous::RankState;

// "rank 3", "ranks 0, 1 and 3"
std::string name_ranks(const std::vector<const RankView*>& ranks) {
  std::string result = ranks.size() == 1 ? "rank " : "ranks ";
  // The page's text is short; after a few the others are counted.
  constexpr std::size_t kNamed = 6;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kNamed) return result + fmt::format(" and {} more", ranks.size() - kNamed);
    if (i > 0) result += i + 1 == ranks.size() ? " and " : ", ";
    result += std::to_string(ranks[i]->rank);
  }
  return result;
}

std::vector<const RankView*> alive_in(const std::vector<RankView>& ranks, RankState state) {
  std::vector<const RankView*> result;
  for (const RankView& rank : ranks)
    if (rank.alive && rank.state == state) result.push_back(&rank);
  return result;
}

}  // namespace

std::string missing_rank_cause(const std::vector<RankView>& ranks, const RankView& exited) {
  const auto waiting_in_init = alive_in(ranks, RankState::kInit);
  const auto waiting_in_collective = alive_in(ranks, RankState::kInCollective);
  switch (exited.state) {
    case RankState::kSpawned:
      if (waiting_in_init.empty()) return "";
      return fmt::format(
          "rank {} (pid {}) exited with code {} before it joined, while {} waited for it in init",
          exited.rank, exited.pid, exited.code, name_ranks(waiting_in_init));
    case RankState::kInit:
      if (waiting_in_init.empty() && waiting_in_collective.empty()) return "";
      return fmt::format(
          "rank {} (pid {}) exited with code {} inside init, while {} waited for it", exited.rank,
          exited.pid, exited.code,
          name_ranks(waiting_in_init.empty() ? waiting_in_collective : waiting_in_init));
    case RankState::kInCollective:
      return fmt::format("rank {} (pid {}) exited with code {} inside {}", exited.rank, exited.pid,
                         exited.code, exited.operation.empty() ? "a collective" : exited.operation);
    case RankState::kRunning:
      if (waiting_in_collective.empty()) return "";
      return fmt::format(
          "rank {} (pid {}) exited with code {} without leaving, while {} waited in {}",
          exited.rank, exited.pid, exited.code, name_ranks(waiting_in_collective),
          waiting_in_collective.front()->operation.empty()
              ? "a collective"
              : waiting_in_collective.front()->operation);
    case RankState::kNone:
    case RankState::kLeft:
    case RankState::kExited:
      return "";
  }
  return "";
}

std::string missing_rank_cause_by_victim(const RankView& victim, const RankView& exited) {
  return fmt::format("rank {} (pid {}) exited with code {}, and rank {} (pid {}) needed it",
                     exited.rank, exited.pid, exited.code, victim.rank, victim.pid);
}

std::string late_rank_cause(const RankView& victim, const RankView& late) {
  const std::string where = late.state == RankState::kSpawned ? "had not reached init"
                            : late.state == RankState::kInCollective && !late.operation.empty()
                                ? "was in " + late.operation
                                : "was running";
  return fmt::format("rank {} (pid {}) {} when rank {} (pid {}) gave it up{}", late.rank, late.pid,
                     where, victim.rank, victim.pid,
                     victim.operation.empty() ? "" : " in " + victim.operation);
}

}  // namespace dtrun::launcher
