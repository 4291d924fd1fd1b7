#include "scenario.h"

#include <algorithm>

namespace dtrun::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kMillion = 1000000;

// Few nodes meet more of each other's faults; many are slower to simulate.
int draw_node_count(RandomSource& random) {
  const std::int64_t dice = random.below(100);
  if (dice < 55) return static_cast<int>(random.between(1, 5));
  if (dice < 90) return static_cast<int>(random.between(4, 16));
  return static_cast<int>(random.between(16, 64));
}

void draw_settings(Scenario& scenario, RandomSource& random, int nodes) {
  auto& settings = scenario.settings;
  // Some are to spare, some are too few.
  settings.max_nodes = static_cast<int>(random.chance(300) ? random.between(1, nodes + 1) : nodes);
  settings.min_nodes = static_cast<int>(random.chance(400) ? settings.max_nodes
                                                           : random.between(1, settings.max_nodes));
  const int restarts[] = {0, 0, 1, 2, 3, 5, 10, 100};
  settings.max_restarts = restarts[random.below(8)];
  settings.join_timeout = random.of_any_size(seconds(20), seconds(600));
  settings.last_call_timeout =
      random.chance(200) ? Moment::zero() : random.of_any_size(milliseconds(500), seconds(30));
  settings.close_timeout = random.of_any_size(seconds(1), seconds(30));
  settings.keep_alive_interval = random.of_any_size(milliseconds(1500), seconds(5));
  settings.silence_window = settings.keep_alive_interval * random.between(2, 4);
  scenario.rejoin_timeout = random.of_any_size(seconds(5), seconds(30));
}

void draw_nodes(Scenario& scenario, RandomSource& random, int nodes) {
  const bool numbered = random.chance(250);
  const bool together = random.chance(500);
  for (int i = 0; i < nodes; ++i) {
    NodePlan plan;
    plan.host = "node" + std::to_string(i + 1);
    if (numbered) plan.node_rank = i % scenario.settings.max_nodes;
    plan.local_ranks = static_cast<int>(random.chance(700) ? 8 : random.between(1, 8));
    if (i > 0)
      plan.start = together ? random.between(Moment::zero(), Moment(seconds(1)))
                            : random.of_any_size(milliseconds(10), seconds(120));
    plan.clock.origin = random.between(0, 400) * 86400 * 1000 * kMillion;
    const std::int64_t rate = random.chance(100) ? 10000 : 300;
    plan.clock.parts_per_million = random.between(-rate, rate);
    scenario.nodes.push_back(plan);
  }
  // A numbered node beyond the last has a number that is taken: once, and only where that is no
  // contradiction.
  if (numbered && scenario.settings.one_round())
    scenario.nodes.resize(std::min<std::size_t>(
        scenario.nodes.size(), static_cast<std::size_t>(scenario.settings.max_nodes)));
}

void draw_work(Scenario& scenario, RandomSource& random) {
  // All delays together stay below the shortest user timeout, a second: beyond it TCP gives up.
  scenario.delay_low = random.of_any_size(Moment(1000), Moment(milliseconds(5)));
  scenario.delay_high =
      scenario.delay_low + random.of_any_size(Moment(1000), Moment(milliseconds(150)));
  scenario.work_low = random.of_any_size(milliseconds(10), seconds(100));
  scenario.work_high = scenario.work_low + random.of_any_size(milliseconds(10), seconds(600));
  scenario.stop_grace = random.of_any_size(seconds(1), seconds(30));
  scenario.failing_permille = random.chance(500) ? static_cast<int>(random.below(300)) : 0;
}

void draw_faults(Scenario& scenario, RandomSource& random) {
  if (random.chance(60)) {  // a quiet run, which must end well
    scenario.failing_permille = 0;
    for (NodePlan& plan : scenario.nodes) plan.start = std::min<Moment>(plan.start, seconds(5));
    return;
  }
  // A subset each time: faults that always come together hide one another.
  const int share = static_cast<int>(random.between(80, 700));
  for (int i = 0; i < static_cast<int>(Fault::kCount); ++i)
    if (random.chance(share)) scenario.faults.push_back(static_cast<Fault>(i));
  if (scenario.faults.empty()) scenario.faults.push_back(Fault::kAgentCrash);
  const auto has = [&](Fault fault) {
    return std::find(scenario.faults.begin(), scenario.faults.end(), fault) !=
           scenario.faults.end();
  };
  if (has(Fault::kHang)) scenario.hanging_permille = static_cast<int>(random.below(400));
  if (has(Fault::kStoreFailure))
    scenario.store_failing_permille = static_cast<int>(random.below(300));
  if (has(Fault::kDoubleHello)) scenario.double_hello_permille = static_cast<int>(random.below(50));
  scenario.fault_gap = random.of_any_size(milliseconds(500), seconds(60));
  scenario.faults_until = random.of_any_size(seconds(30), seconds(1800));
}

}  // namespace

std::string_view fault_name(Fault fault) {
  static constexpr std::string_view kNames[] = {
      "agent crash",   "agent replaced",  "node crash",      "agent pause",   "node pause",
      "head pause",    "head node pause", "head crash",      "cut",           "one-way cut",
      "reset",         "half reset",      "stall",           "refused dial",  "slow node",
      "operator stop", "late joiner",     "worker failure",  "store failure", "hang",
      "double hello",  "stale to head",   "stale to member", "lease cut"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Fault::kCount));
  return kNames[static_cast<std::size_t>(fault)];
}

Moment Clock::local(Moment truth) const {
  const std::int64_t time = truth.count();
  const std::int64_t drift =
      time / kMillion * parts_per_million + time % kMillion * parts_per_million / kMillion;
  return Moment(origin + time - slept + drift);
}

Moment Clock::truth(Moment local_time) const {
  Moment result(local_time.count() - origin + slept);
  for (int i = 0; i < 8; ++i) result += local_time - local(result);
  while (local(result) < local_time) ++result;
  return result;
}

Moment Scenario::end_by() const {
  const Moment a_round =
      settings.last_call_timeout * 2 + settings.silence_window * 4 + stop_grace * 2 +
      std::chrono::seconds(60) +
      (settings.backoff > Moment::zero() ? settings.most_backoff : Moment::zero());
  return faults_until + std::chrono::seconds(130) + settings.join_timeout + rejoin_timeout * 2 +
         settings.close_timeout * 2 + a_round * 4 + work_high + std::chrono::seconds(120);
}

namespace {

// As the launcher has it; and, at a fixed head, the coming back that it does not use.
rendezvous::rounds::AfterLoss draw_after_loss(const Scenario& scenario) {
  using rendezvous::rounds::AfterLoss;
  if (scenario.meeting == Meeting::kElected) return AfterLoss::kRejoin;
  if (scenario.settings.one_round()) return AfterLoss::kEnd;
  return scenario.seed % 2 == 0 ? AfterLoss::kMakeRoom : AfterLoss::kRejoin;
}

// From numbers of their own: the other half of the seeds plays what it played before there were
// any.
void draw_restart_policy(Scenario& scenario) {
  RandomSource random(scenario.seed ^ 0x7265'7374'6172'7473);
  if (random.chance(500)) return;
  auto& settings = scenario.settings;
  if (random.chance(500)) settings.restart_scope = rendezvous::rounds::RestartScope::kAgent;
  if (random.chance(500)) {
    settings.backoff = random.of_any_size(milliseconds(10), seconds(20));
    settings.most_backoff = settings.backoff * random.between(1, 4);
  }
  if (random.chance(500))
    settings.alike_window = random.of_any_size(milliseconds(100), seconds(60));
  if (random.chance(300))
    settings.final_codes = {static_cast<std::int32_t>(random.between(1, kFailureCodes))};
}

}  // namespace

Scenario draw_scenario(std::uint64_t seed) {
  RandomSource random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.meeting = random.chance(350) ? Meeting::kElected : Meeting::kFixedHead;
  const int nodes = draw_node_count(random);
  draw_settings(scenario, random, nodes);
  draw_nodes(scenario, random, nodes);
  draw_work(scenario, random);
  draw_faults(scenario, random);
  draw_restart_policy(scenario);
  scenario.after_loss = draw_after_loss(scenario);
  scenario.lease = scenario.settings.keep_alive_interval * 3;
  return scenario;
}

}  // namespace dtrun::simulation
