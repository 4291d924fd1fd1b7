#include "rounds/round_admission.h"

#include <fmt/core.h>

#include "dtrun/base/deadline.h"
#include "rounds/planted_bug.h"
#include "wire/printable.h"

namespace dtrun::rendezvous::rounds {
namespace {

constexpr int kMostHostsNamed = 16;

std::string nodes_text(const RoundSettings& settings) {
  return settings.elastic() ? fmt::format("{}:{}", settings.min_nodes, settings.max_nodes)
                            : fmt::format("{}", settings.max_nodes);
}

std::string_view title_of_head(const HeadState& state) {
  return state.head_loss == HeadLoss::kMovesTheHead ? "the head" : "node 0";
}

Objection stranger(std::string text) {
  return {Objection::Kind::kStranger, std::move(text)};
}

Objection contradiction(std::string text) {
  return {Objection::Kind::kContradiction, std::move(text)};
}

std::string begun_without(const HeadState& state, const Hello& hello) {
  const std::string begun = fmt::format("it has begun already with its {} nodes ({})",
                                        state.settings.max_nodes, hosts_of(state));
  const auto holder = state.by_node_rank.find(hello.node_rank);
  if (holder == state.by_node_rank.end())
    return fmt::format("job '{}' is full: {}", state.run_id, begun);
  return fmt::format("--node_rank={} of job '{}' is taken already, by {}: {}", hello.node_rank,
                     state.run_id, state.members.at(holder->second).hello.host, begun);
}

Objection check_phase(const HeadState& state, const Hello& hello) {
  if (state.phase == HeadPhase::kClosed && !planted(PlantedBug::kCloseNotFinal)) {
    if (state.verdict.outcome == Close::Outcome::kSucceeded)
      return stranger(fmt::format("job '{}' has ended well already", state.run_id));
    if (state.last_started == kNoRound)
      return stranger(fmt::format("job '{}' is ending before it has begun: {}", state.run_id,
                                  state.verdict.failure.describe()));
    return stranger(fmt::format("job '{}' has failed already: {}", state.run_id,
                                state.verdict.failure.describe()));
  }
  // One that is done in this very round, and has lost its connection, waits for the verdict.
  const bool done_here = hello.done_round != kNoRound && hello.done_round == state.last_started;
  if (state.phase == HeadPhase::kRunning && done_here) return {};
  const bool on = state.phase == HeadPhase::kRunning || state.phase == HeadPhase::kDraining;
  if (on && state.settings.one_round()) return stranger(begun_without(state, hello));
  if (state.phase == HeadPhase::kRunning && state.somebody_done)
    return stranger(fmt::format("job '{}' is ending: some of its nodes are done", state.run_id));
  return {};
}

Objection check_node_rank(const HeadState& state, const Hello& hello) {
  if (hello.node_rank == kNoNodeRank) return {};
  if (hello.node_rank < 0 || hello.node_rank >= state.settings.max_nodes)
    return contradiction(fmt::format("there is no node {} in a job of {}", hello.node_rank,
                                     state.settings.max_nodes));
  // Where nodes come and go, the one that holds the number may be dead without our knowing yet.
  const auto holder = state.by_node_rank.find(hello.node_rank);
  if (holder != state.by_node_rank.end() && state.settings.one_round())
    return contradiction(fmt::format("--node_rank={} is taken already, by {}", hello.node_rank,
                                     state.members.at(holder->second).hello.host));
  return {};
}

// All with --node_rank, or none.
Objection check_numbering(const HeadState& state, const Hello& hello) {
  if (state.members.empty()) return {};
  const bool head_has = state.members.begin()->second.hello.node_rank != kNoNodeRank;
  const bool has = hello.node_rank != kNoNodeRank;
  if (head_has == has) return {};
  const int given = has ? hello.node_rank : state.members.begin()->second.hello.node_rank;
  return contradiction(fmt::format(
      "it was started {}, {} {}: give it on all nodes, or on none",
      has ? fmt::format("with --node_rank={}", given) : "without --node_rank", title_of_head(state),
      has ? "without" : fmt::format("with --node_rank={}", given)));
}

// Anybody may have made it up, and it is shown on a terminal.
std::string shown_run_id(const std::string& run_id) {
  constexpr std::size_t kMost = 100;
  const std::string text = printable(std::string_view(run_id).substr(0, kMost));
  return run_id.size() > kMost ? text + "..." : text;
}

}  // namespace

Objection objection_to(const HeadState& state, const Hello& hello) {
  if (hello.run_id != state.run_id)
    return stranger(fmt::format("it belongs to job '{}', and this is job '{}' (--rdzv_id)",
                                shown_run_id(hello.run_id), state.run_id));
  if (Objection objection = check_phase(state, hello); objection.kind != Objection::Kind::kNone)
    return objection;
  const RoundSettings& settings = state.settings;
  if (hello.min_nodes != settings.min_nodes || hello.max_nodes != settings.max_nodes) {
    RoundSettings theirs = settings;
    theirs.min_nodes = hello.min_nodes;
    theirs.max_nodes = hello.max_nodes;
    return contradiction(fmt::format("it was started with --nnodes={}, {} with --nnodes={}",
                                     nodes_text(theirs), title_of_head(state),
                                     nodes_text(settings)));
  }
  if (hello.local_ranks < 1) return contradiction("it brings no rank");
  if (hello.local_ranks > kMostLocalRanks)
    return contradiction(
        fmt::format("it brings {} ranks, and {} are allowed", hello.local_ranks, kMostLocalRanks));
  if (Objection objection = check_numbering(state, hello); objection.kind != Objection::Kind::kNone)
    return objection;
  return check_node_rank(state, hello);
}

std::string hosts_of(const HeadState& state) {
  std::string result;
  int named = 0;
  for (const auto& [id, member] : state.members) {
    if (member.leaving) continue;
    if (named++ == kMostHostsNamed) return result + ", ...";
    result += (result.empty() ? "" : ", ") + member.hello.host;
  }
  return result;
}

std::string who_is_here(const HeadState& state) {
  return fmt::format("{} of {} nodes are here", state.present, nodes_text(state.settings));
}

namespace {

// Of agents that were started with numbers; else "".
std::string missing_nodes(const HeadState& state) {
  if (state.members.empty()) return "";
  if (state.members.begin()->second.hello.node_rank == kNoNodeRank) return "";
  std::string missing;
  int named = 0;
  for (int i = 0; i < state.settings.min_nodes; ++i) {
    if (state.by_node_rank.contains(i)) continue;
    if (named++ == kMostHostsNamed) return missing + ", ...";
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i);
  }
  return missing;
}

}  // namespace

std::string who_is_missing(const HeadState& state, Moment now) {
  const std::string text =
      fmt::format("{} of {} nodes have joined in {}", state.present, nodes_text(state.settings),
                  base::format_duration(now - state.gathering_since));
  const std::string missing = missing_nodes(state);
  return missing.empty() ? fmt::format("{} ({})", text, hosts_of(state))
                         : fmt::format("{}; missing: node {}", text, missing);
}

std::string waiting_text(const HeadState& state, Moment now) {
  if (state.phase != HeadPhase::kGathering || !state.join_deadline) return "";
  const std::string missing = missing_nodes(state);
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(*state.join_deadline - now);
  return fmt::format("waiting for other nodes: {} ({}){}; {} s are left", who_is_here(state),
                     hosts_of(state), missing.empty() ? "" : "; missing: node " + missing,
                     left.count());
}

}  // namespace dtrun::rendezvous::rounds
