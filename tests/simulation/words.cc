#include "words.h"

#include <fmt/core.h>

#include <array>
#include <concepts>

namespace dtrun::simulation {
namespace rounds = rendezvous::rounds;
namespace {

std::string text(const rounds::Hello& hello) {
  return fmt::format("Hello {} agent {:x} last r{} g{} of {}, done r{}", hello.describe(),
                     hello.agent & 0xffff, hello.last_round, hello.last_group_rank,
                     hello.last_group_size, hello.done_round);
}
std::string text(const rounds::Beat&) {
  return "Beat";
}
std::string text(const rounds::StoreReady& m) {
  return fmt::format("StoreReady r{}", m.round);
}
std::string text(const rounds::Stopped& m) {
  return fmt::format("Stopped r{}", m.round);
}
std::string text(const rounds::Failed& m) {
  return fmt::format("Failed r{}: {}", m.round, m.failure.describe());
}
std::string text(const rounds::Done& m) {
  return fmt::format("Done r{}", m.round);
}
std::string text(const rounds::WorkerEnd& m) {
  return fmt::format("WorkerEnd r{} rank {}", m.round, m.rank);
}
std::string text(const rounds::Leaving&) {
  return "Leaving";
}
std::string text(const rounds::Echo&) {
  return "Echo";
}
std::string text(const rounds::Evicted& m) {
  return "Evicted: " + m.text;
}
std::string text(const rounds::Accepted&) {
  return "Accepted";
}
std::string text(const rounds::Refused& m) {
  return "Refused: " + m.text;
}
std::string text(const rounds::Standing& m) {
  const char* const kinds[] = {"waiting", "spare", "last call"};
  return fmt::format("Standing {} of {}", kinds[static_cast<int>(m.kind)], m.nodes);
}
std::string text(const rounds::Prepare& m) {
  return fmt::format("Prepare r{}", m.round);
}
std::string text(const rounds::Start& m) {
  return fmt::format("Start r{} g{}/{} base {}/{} restarts {}", m.round, m.group_rank,
                     m.group_world_size, m.base_rank, m.world_size, m.restart_count);
}
std::string text(const rounds::Stop& m) {
  return fmt::format("Stop r{}: {}", m.round, m.cause.describe());
}
std::string text(const rounds::Close& m) {
  return m.outcome == rounds::Close::Outcome::kSucceeded
             ? std::string("Close: succeeded")
             : fmt::format("Close: failed: {}", m.failure.describe());
}

template <typename Variant>
int round_in(const Variant& variant) {
  return std::visit(
      [](const auto& message) -> int {
        if constexpr (requires { message.round; })
          return message.round;
        else
          return rounds::kNoRound;
      },
      variant);
}

}  // namespace

std::string text_of(const rounds::AgentMessage& message) {
  return std::visit([](const auto& m) { return text(m); }, message);
}
std::string text_of(const rounds::HeadMessage& message) {
  return std::visit([](const auto& m) { return text(m); }, message);
}

std::string name_of(rounds::MemberPhase phase) {
  static constexpr std::array kNames = {"joining",   "waiting", "running", "stopping",
                                        "rejoining", "done",    "ending",  "ended"};
  return kNames[static_cast<std::size_t>(phase)];
}
std::string name_of(rounds::HeadPhase phase) {
  static constexpr std::array kNames = {"gathering", "preparing", "running", "draining", "closed"};
  return kNames[static_cast<std::size_t>(phase)];
}

int round_of(const rounds::AgentMessage& message) {
  return round_in(message);
}
int round_of(const rounds::HeadMessage& message) {
  return round_in(message);
}

}  // namespace dtrun::simulation
