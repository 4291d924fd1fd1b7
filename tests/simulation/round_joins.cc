// round_joins: what a join, a restart and a leave of many agents cost in the head's step() itself,
// beyond what sockets of one machine can show. Prints nanoseconds for each agent.
#include <fmt/core.h>

#include <chrono>

#include "dtrun/rendezvous/round_head.h"

namespace {

using namespace dtrun::rendezvous::rounds;
using Clock = std::chrono::steady_clock;

void measure(int agents) {
  RoundSettings settings;
  settings.min_nodes = 1;
  settings.max_nodes = agents;
  settings.max_restarts = 1;
  Moment now{};
  HeadState head = make_head(settings, "job", now);
  const auto each = [&](auto message_of) {
    const auto start = Clock::now();
    for (int id = 1; id <= agents; ++id) {
      step(head, Said{id, message_of(id)}, ++now);
      (void)head_deadline(head);
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    return took.count() / agents;
  };
  const double join = each([&](int id) -> AgentMessage {
    Hello hello;
    hello.run_id = "job";
    hello.host = fmt::format("node{}", id);
    hello.max_nodes = agents;
    hello.agent = static_cast<std::uint64_t>(id);
    return hello;
  });
  const auto start_round = [&] {
    for (const auto& [id, member] : head.members)
      if (member.group_rank == 0)
        return step(head, Said{id, StoreReady{head.round, "a", 1}}, ++now);
    return std::vector<HeadAction>{};
  };
  start_round();
  step(head, Said{1, Failed{head.round, {}}}, ++now);
  const int old = head.round;
  const double stop = each([&](int) -> AgentMessage { return Stopped{old}; });
  start_round();
  const auto start = Clock::now();
  for (int id = agents; id >= 1; --id) step(head, Lost{id, LossKind::kGone, "gone"}, ++now);
  const std::chrono::duration<double, std::nano> took = Clock::now() - start;
  fmt::print("{:>6} agents: join {:.0f} ns, restart {:.0f} ns, loss {:.0f} ns each\n", agents, join,
             stop, took.count() / agents);
}

}  // namespace

int main() {
  for (const int agents : {16, 256, 1024, 10000, 100000}) measure(agents);
}
