// The supervision table: every state that a round's ranks can come to, by breadth-first search over
// all that can happen, and what must hold in each.
#include "ranks/supervision.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace dtrun::launcher::supervision {
namespace {

constexpr int kRanks = 3;

// The ranks and whoever carries the table out, as far as the table can tell.
struct World {
  Phase phase = Phase::kIdle;
  int alive = 0;
  int failed = 0;
  bool look = false;  // is posted
  bool timer = false;
  bool sweeping = false;  // kSwept is to come
  bool flushing = false;  // kFlushed is to come
  int first_signals = 0;
  bool killed = false;
  int blamed = 0;
  int swept = 0;
  int flushed = 0;
  int reports = 0;
  bool unkillable = false;

  auto key() const {
    return std::make_tuple(phase, alive, failed, look, timer, sweeping, flushing, first_signals,
                           killed, blamed, swept, flushed, reports, unkillable);
  }
  bool operator<(const World& other) const { return key() < other.key(); }
  bool ladder() const { return first_signals > 0 || killed; }
};

bool looks(Phase phase) {
  return phase == Phase::kDeciding || phase == Phase::kAwaitingRoot;
}

// Who answers at once does so here with all its answers.
class Search {
 public:
  // What can come from outside.
  std::vector<std::pair<Event, World>> moves(const World& world) const {
    std::vector<std::pair<Event, World>> result;
    const auto add = [&](Event event, World after) { result.emplace_back(event, after); };
    if (world.phase == Phase::kIdle) {
      add(Event::kStart, world);
      return result;
    }
    if (world.phase == Phase::kStarting) {
      for (int alive = 0; alive <= kRanks; ++alive) {
        World after = world;
        after.alive = alive;
        add(alive == kRanks ? Event::kAllStarted : Event::kStartFailed, after);
      }
      return result;
    }
    for (const Event event : {Event::kStop, Event::kStopNow, Event::kYield, Event::kForward})
      add(event, world);
    if (world.alive > 0) {
      World after = world;
      --after.alive;
      add(Event::kRankEndedWell, after);
      ++after.failed;
      add(Event::kRankEndedBadly, after);
      if (world.phase == Phase::kRunning) add(Event::kRankEndedAsTold, after);
    }
    if (world.look) {
      World after = world;
      after.look = false;
      if (!looks(world.phase)) add(Event::kForward, after);  // it comes to nothing
      for (const Event event : {Event::kRootFound, Event::kOnlyVictims, Event::kMissingFound})
        if (looks(world.phase)) add(event, after);
    }
    if (world.timer) add(Event::kTimeUp, world);
    if (world.alive == 0) add(Event::kNobodyLeft, world);
    if (world.sweeping) {
      World after = world;
      after.sweeping = false;
      add(Event::kSwept, after);
    }
    if (world.flushing) {
      World after = world;
      after.flushing = false;
      add(Event::kFlushed, after);
    }
    return result;
  }

  // The worlds that can follow; several where an action is answered at once, or not.
  std::vector<World> after(Event event, World world) {
    const Row* const row = row_of(world.phase, event);
    if (row == nullptr) {
      ADD_FAILURE() << "in " << name_of(world.phase) << " comes event " << static_cast<int>(event);
      return {};
    }
    used_.insert(row);
    const Phase before = world.phase;
    world.phase = row->next;
    if (world.phase != before) world.timer = time_of(world.phase) != Time::kNone;
    std::vector<World> result = {world};
    for (const auto& action : row->actions)
      if (action) result = carry_out(*action, std::move(result), before);
    return result;
  }

  const std::set<const Row*>& used() const { return used_; }

 private:
  std::vector<World> carry_out(Action action, std::vector<World> worlds, Phase before) {
    std::vector<World> result;
    for (World& world : worlds) {
      EXPECT_EQ(world.reports, 0) << "an action after the end";
      actions_of(action, world, before);
      result.push_back(world);
      if (action != Action::kLookForMissing) continue;
      for (World& found : after(Event::kMissingFound, world)) result.push_back(found);
    }
    return result;
  }

  void actions_of(Action action, World& world, Phase before) {
    switch (action) {
      case Action::kLook:
        world.look = true;
        break;
      case Action::kBlameRoot:
      case Action::kBlameAccused:
        ++world.blamed;
        EXPECT_FALSE(world.ladder()) << "somebody is blamed when the end is under way";
        break;
      case Action::kPass:
        EXPECT_FALSE(world.killed);
        break;
      case Action::kFirstSignal:
        ++world.first_signals;
        EXPECT_FALSE(world.killed) << "a ladder begins after SIGKILL";
        break;
      case Action::kKill:
        world.killed = true;
        break;
      case Action::kSweep:
        ++world.swept;
        world.sweeping = true;
        EXPECT_EQ(world.alive, 0) << "swept while ranks live, from " << name_of(before);
        break;
      case Action::kCountUnkillable:
        world.unkillable = true;
        break;
      case Action::kFlush:
        ++world.flushed;
        world.flushing = true;
        EXPECT_TRUE(world.alive == 0 || world.unkillable);
        break;
      case Action::kReport:
        ++world.reports;
        break;
      case Action::kSpawn:
      case Action::kTellStartFailure:
      case Action::kLookForMissing:
        break;
    }
  }

  std::set<const Row*> used_;
};

struct Reached {
  std::map<World, std::vector<std::pair<Event, World>>> next;  // by each event
  std::set<const Row*> used;
};

Reached reach_all() {
  Search search;
  Reached reached;
  std::deque<World> open = {World{}};
  while (!open.empty()) {
    const World world = open.front();
    open.pop_front();
    if (reached.next.contains(world)) continue;
    auto& next = reached.next[world];
    for (const auto& [event, input] : search.moves(world))
      for (const World& after : search.after(event, input)) {
        next.emplace_back(event, after);
        open.push_back(after);
      }
  }
  reached.used = search.used();
  return reached;
}

TEST(SupervisionTest, NothingHappensThatTheTableDoesNotExpectAndNoRowIsDead) {
  const Reached reached = reach_all();
  EXPECT_GT(reached.next.size(), 100U);
  for (const Row& row : table())
    EXPECT_TRUE(reached.used.contains(&row))
        << name_of(row.phase) << ", event " << static_cast<int>(row.event) << " never comes";
  RecordProperty("states", static_cast<int>(reached.next.size()));
}

TEST(SupervisionTest, ThereIsOneLadderOneBlameOneSweepAndOneEnd) {
  for (const auto& [world, next] : reach_all().next) {
    EXPECT_LE(world.first_signals, 1);
    EXPECT_LE(world.blamed, 1);
    EXPECT_LE(world.swept, 1);
    EXPECT_LE(world.flushed, 1);
    EXPECT_EQ(world.reports, world.phase == Phase::kEnded ? 1 : 0);
    EXPECT_EQ(world.timer, time_of(world.phase) != Time::kNone);
    if (world.phase == Phase::kStopping || world.phase == Phase::kKilling) {
      EXPECT_TRUE(world.ladder());
    }
    if (world.phase == Phase::kRunning || world.phase == Phase::kYielding) {
      EXPECT_FALSE(world.ladder());
    }
  }
}

// Whatever is sure to come in the end by itself. Ranks end by themselves only where SIGKILL was
// sent, and even then perhaps never.
bool is_sure(Event event, const World& world) {
  switch (event) {
    case Event::kRootFound:
    case Event::kOnlyVictims:
    case Event::kMissingFound:
      return world.look;
    case Event::kStart:
    case Event::kAllStarted:
    case Event::kStartFailed:
    case Event::kTimeUp:
    case Event::kSwept:
    case Event::kFlushed:
    case Event::kNobodyLeft:
      return true;
    default:
      return false;
  }
}

// From every state whatever must come leads to the end, where nobody waits for a rank that runs.
TEST(SupervisionTest, TheEndIsReachedFromEverywhereByWhatIsSureToCome) {
  const Reached reached = reach_all();
  std::set<World> ending;
  for (const auto& [world, next] : reached.next)
    if (world.phase == Phase::kEnded || (world.phase == Phase::kRunning && world.alive > 0))
      ending.insert(world);
  bool more = true;
  while (more) {
    more = false;
    for (const auto& [world, next] : reached.next) {
      if (ending.contains(world)) continue;
      const bool leads = std::ranges::any_of(next, [&, from = &world](const auto& move) {
        return is_sure(move.first, *from) && ending.contains(move.second);
      });
      if (leads) more = ending.insert(world).second || more;
    }
  }
  for (const auto& [world, next] : reached.next)
    EXPECT_TRUE(ending.contains(world)) << fmt::format(
        "{} with {} alive, {} failed never ends", name_of(world.phase), world.alive, world.failed);
}

TEST(SupervisionTest, StoppingAlwaysLeadsTowardsTheEndAndNeverBack) {
  const auto order = [](Phase phase) { return static_cast<int>(phase); };
  for (const Row& row : table()) EXPECT_GE(order(row.next), order(row.phase)) << name_of(row.phase);
}

TEST(SupervisionTest, WhoeverStopsTheRanksIsObeyedInEveryPhaseInWhichTheyLive) {
  for (const Phase phase : {Phase::kRunning, Phase::kAwaitingWord, Phase::kDeciding,
                            Phase::kAwaitingRoot, Phase::kYielding}) {
    EXPECT_EQ(row_of(phase, Event::kStop)->next, Phase::kStopping);
    EXPECT_EQ(row_of(phase, Event::kStopNow)->next, Phase::kKilling);
  }
  EXPECT_EQ(row_of(Phase::kStopping, Event::kStopNow)->next, Phase::kKilling);
  EXPECT_EQ(row_of(Phase::kStopping, Event::kTimeUp)->next, Phase::kKilling);
}

TEST(SupervisionTest, ActionsThatAreAnsweredAtOnceAreTheLastOfTheirRows) {
  for (const Row& row : table())
    for (int i = 0; i + 1 < kMostActions; ++i) {
      const auto action = row.actions[static_cast<std::size_t>(i)];
      const bool last = !row.actions[static_cast<std::size_t>(i) + 1];
      const bool answered = action == Action::kSpawn || action == Action::kLookForMissing ||
                            action == Action::kSweep || action == Action::kFlush ||
                            action == Action::kReport;
      EXPECT_TRUE(!answered || last) << name_of(row.phase);
    }
}

TEST(SupervisionTest, EachPairOfPhaseAndEventHasOneRow) {
  std::set<std::pair<Phase, Event>> seen;
  for (const Row& row : table()) EXPECT_TRUE(seen.insert({row.phase, row.event}).second);
}

}  // namespace
}  // namespace dtrun::launcher::supervision
