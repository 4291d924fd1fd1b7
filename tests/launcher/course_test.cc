// The agent's table: every state that it can come to, by breadth-first search over all that seat,
// guard, operator and its own work can do, and what must hold in each.
#include "agent/course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace dtrun::launcher::course {
namespace {

// What those around the agent know of it.
struct World {
  State state;
  bool owes_end = false;  // the seat has begun a round, and has not heard its end
  bool finished = false;  // the seat has said so
  bool guard = true;      // lives, and is heard
  bool commands = false;  // run
  bool flushes = false;   // kFlushed is to come
  bool left = false;      // kFree is to come
  int flushed = 0;

  auto key() const {
    const Facts& f = state.facts;
    return std::make_tuple(
        std::make_tuple(state.phase, f.only_round, f.restarts_left, f.stuck, f.yielded,
                        f.output_waits, f.prospect, f.failed_here, f.drain, f.stop, f.guard_gone),
        owes_end, finished, guard, commands, flushes, left, flushed);
  }
  bool operator<(const World& other) const { return key() < other.key(); }
  bool is_in(Phase phase) const { return state.phase == phase; }
  bool has_begun() const {
    return is_in(Phase::kRunning) || is_in(Phase::kCollecting) || is_in(Phase::kPreparing);
  }
};

using Move = std::pair<Event, World>;

void add_moves_of_seat(const World& world, std::vector<Move>& moves) {
  const Facts& facts = world.state.facts;
  if (world.is_in(Phase::kWaiting) && !world.owes_end && !world.finished) {
    for (const bool left : {false, true}) {
      World after = world;
      after.owes_end = true;
      after.state.facts.restarts_left = left && !facts.only_round;
      moves.emplace_back(Event::kStart, after);
    }
    World after = world;
    after.finished = true;
    moves.emplace_back(Event::kSucceeded, after);
    moves.emplace_back(Event::kFinished, after);
  }
  // One may cross the message that the ranks are gone.
  if (!world.finished && (world.has_begun() || world.is_in(Phase::kWaiting))) {
    for (const Event event : {Event::kStopJob, Event::kStopJobInPeace})
      moves.emplace_back(event, world);
    for (const Event event : {Event::kStopRound, Event::kStopRoundInPeace})
      if (!facts.only_round && facts.prospect != Prospect::kEndOfJob)
        moves.emplace_back(event, world);
  }
  if (world.left) moves.emplace_back(Event::kFree, world);
}

void add_moves_of_guard(const World& world, std::vector<Move>& moves) {
  if (!world.guard) return;
  moves.emplace_back(Event::kReaderGone, world);
  World dead = world;
  dead.guard = dead.flushes = false;
  moves.emplace_back(Event::kGuardGone, dead);
  moves.emplace_back(Event::kGuardGoneStuck, dead);
  if (world.flushes) {
    World after = world;
    after.flushes = false;
    moves.emplace_back(Event::kFlushed, after);
  }
  if (!world.is_in(Phase::kRunning)) return;
  moves.emplace_back(Event::kFailure, world);
  for (int bits = 0; bits < 8; ++bits) {
    World after = world;
    after.state.facts.stuck = (bits & 1) != 0;
    after.state.facts.yielded = (bits & 2) != 0;
    after.state.facts.output_waits = (bits & 4) != 0;
    moves.emplace_back(Event::kEndedWell, after);
    moves.emplace_back(Event::kEndedBadly, after);
  }
}

std::vector<Move> moves_of(const World& world) {
  std::vector<Move> moves;
  add_moves_of_seat(world, moves);
  add_moves_of_guard(world, moves);
  for (const Event event : {Event::kStopWish, Event::kDrainWish, Event::kForward})
    moves.emplace_back(event, world);
  if (world.is_in(Phase::kCollecting)) moves.emplace_back(Event::kCollected, world);
  if (world.commands) {
    World after = world;
    after.commands = false;
    moves.emplace_back(Event::kPrepared, after);
    moves.emplace_back(Event::kUnfit, after);
  }
  return moves;
}

void carry_out_for_guard(Action action, World& world, const State& before) {
  const bool ranks = before.phase == Phase::kRunning && world.guard;
  switch (action) {
    case Action::kBegin:
      EXPECT_TRUE(world.owes_end && world.guard);
      EXPECT_FALSE(before.facts.stuck || before.facts.drain) << "this node must be in no round";
      break;
    case Action::kStopRanks:
    case Action::kPass:
    case Action::kTellMoreFollows:
      EXPECT_TRUE(ranks) << "an order about ranks that are not there";
      break;
    case Action::kDrain:
      EXPECT_TRUE(ranks && !before.facts.drain);
      break;
    case Action::kFlush:
      EXPECT_TRUE(world.guard && before.facts.output_waits);
      world.flushes = true;
      ++world.flushed;
      break;
    case Action::kDismissGuard:
      EXPECT_FALSE(world.flushes);
      world.guard = false;
      break;
    default:
      break;
  }
}

void carry_out(Action action, World& world, const State& before) {
  carry_out_for_guard(action, world, before);
  switch (action) {
    case Action::kTellAllWell:
    case Action::kTellGone:
    case Action::kTellEnds:
    case Action::kTellStuck:
    case Action::kTellUnfit:
      EXPECT_TRUE(world.owes_end) << "the end of a round is told twice";
      EXPECT_FALSE(world.commands) << "the next round may begin while commands of this node run";
      world.owes_end = false;
      break;
    case Action::kTellFailure:
    case Action::kTellDrained:
      EXPECT_TRUE(world.owes_end) << "told of a round whose end is told";
      break;
    case Action::kPrepare:
      EXPECT_TRUE(before.facts.stop != Stop::kWished && !before.facts.drain);
      world.commands = true;
      break;
    case Action::kEndCommands:
      EXPECT_TRUE(world.commands);
      world.commands = false;
      break;
    case Action::kBeginStop:
    case Action::kBeginLateStop:
      EXPECT_EQ(before.facts.stop, Stop::kNone) << "a stop begins twice";
      break;
    case Action::kLeave:
      EXPECT_TRUE(world.finished && !world.left && !world.flushes);
      world.left = true;
      break;
    case Action::kQuit:
      world.left = false;
      break;
    default:
      break;
  }
}

struct Reached {
  std::map<World, std::vector<Move>> next;  // what each event leads to
  std::set<const Row*> used;
};

Reached reach_all() {
  Reached reached;
  std::deque<World> open;
  for (const bool only_round : {false, true}) {
    World world;
    world.state.facts.only_round = only_round;
    open.push_back(world);
  }
  while (!open.empty()) {
    const World world = open.front();
    open.pop_front();
    if (reached.next.contains(world)) continue;
    auto& next = reached.next[world];
    if (world.is_in(Phase::kOver)) continue;
    for (auto [event, after] : moves_of(world)) {
      const State before = after.state;
      const Row* const row = step(after.state, event);
      if (row == nullptr) {
        ADD_FAILURE() << name_of(before.phase) << ": event " << static_cast<int>(event);
        continue;
      }
      reached.used.insert(row);
      for (const auto& action : row->actions)
        if (action) carry_out(*action, after, before);
      next.emplace_back(event, after);
      open.push_back(after);
    }
  }
  return reached;
}

const Reached& all() {
  static const Reached kAll = reach_all();
  return kAll;
}

bool has(const Row* row, Action action) {
  return std::ranges::any_of(row->actions, [&](const auto& one) { return one == action; });
}

TEST(CourseTest, NothingHappensThatTheTableDoesNotExpectAndNoRowIsDead) {
  EXPECT_GT(all().next.size(), 1000U);
  for (const Row& row : table())
    EXPECT_TRUE(all().used.contains(&row))
        << name_of(row.phase) << ", event " << static_cast<int>(row.event) << " never comes so";
  RecordProperty("states", static_cast<int>(all().next.size()));
}

TEST(CourseTest, TheSeatWaitsForTheEndOfARoundExactlyWhileItHasBegunHere) {
  for (const auto& [world, next] : all().next) {
    if (world.is_in(Phase::kOver)) continue;
    EXPECT_EQ(world.owes_end, world.has_begun()) << name_of(world.state.phase);
    EXPECT_EQ(world.commands, world.is_in(Phase::kPreparing));
    EXPECT_LE(world.flushed, 1);
  }
}

TEST(CourseTest, EachWishToStopIsToldOrEndsTheWait) {
  for (const auto& [world, next] : all().next) {
    if (world.is_in(Phase::kOver)) continue;
    const Row* const row = row_of(world.state, Event::kStopWish);
    EXPECT_TRUE(has(row, Action::kTellStop) || has(row, Action::kQuit));
    EXPECT_EQ(has(row, Action::kQuit), world.finished && world.state.facts.stop != Stop::kNone)
        << "only what comes after the job is cut short, by a second wish";
  }
}

TEST(CourseTest, AStopThatCanChangeNothingDoesNotCount) {
  for (const auto& [world, next] : all().next) {
    if (world.is_in(Phase::kOver)) continue;
    const Row* const row = row_of(world.state, Event::kStopWish);
    const bool late = world.finished || world.state.facts.prospect == Prospect::kEndOfJob;
    EXPECT_FALSE(has(row, late ? Action::kBeginStop : Action::kBeginLateStop));
  }
}

// From every state, by what comes without a wish of the operator's.
TEST(CourseTest, TheEndIsReachedFromEverywhere) {
  std::set<World> ending;
  for (const auto& [world, next] : all().next)
    if (world.is_in(Phase::kOver)) ending.insert(world);
  for (bool more = true; more;) {
    more = false;
    for (const auto& [world, next] : all().next) {
      if (ending.contains(world)) continue;
      const bool leads = std::ranges::any_of(next, [&](const Move& move) {
        const bool wish = move.first == Event::kStopWish || move.first == Event::kDrainWish;
        return !wish && ending.contains(move.second);
      });
      if (leads) more = ending.insert(world).second || more;
    }
  }
  for (const auto& [world, next] : all().next)
    EXPECT_TRUE(ending.contains(world)) << name_of(world.state.phase) << " never ends";
}

// An action that may be answered at once finds the agent in the phase that follows. What comes
// after it in its row must hold whatever the answer was.
TEST(CourseTest, WhatIsAnsweredAtOnceComesLast) {
  for (const Row& row : table())
    for (int i = 0; i + 1 < kMostActions; ++i) {
      const auto action = row.actions[static_cast<std::size_t>(i)];
      const bool last = !row.actions[static_cast<std::size_t>(i) + 1];
      const bool answered = action == Action::kCollect || action == Action::kPrepare ||
                            action == Action::kTellStop || action == Action::kLeave ||
                            action == Action::kQuit;
      EXPECT_TRUE(!answered || last) << name_of(row.phase);
    }
}

TEST(CourseTest, TheLastRowForAnEventAlwaysHolds) {
  for (std::size_t i = 0; i < table().size(); ++i) {
    const Row& row = table()[i];
    const bool last = i + 1 == table().size() || table()[i + 1].phase != row.phase ||
                      table()[i + 1].event != row.event;
    // Those that count as a plainer event where they do not hold.
    const bool special = row.event == Event::kDrainWish || row.event == Event::kStopRoundInPeace ||
                         row.event == Event::kStopJobInPeace;
    EXPECT_TRUE(special || last == (row.when == When::kAlways)) << name_of(row.phase);
  }
}

// --- single courses

State state_after(std::vector<Event> events, Facts facts = {}) {
  State state{.facts = facts};
  for (const Event event : events) {
    EXPECT_NE(step(state, event), nullptr) << static_cast<int>(event);
  }
  return state;
}

std::vector<Action> actions_of(const Row* row) {
  std::vector<Action> actions;
  for (const auto& action : row->actions)
    if (action) actions.push_back(*action);
  return actions;
}

TEST(CourseTest, ADrainWithoutRanksOrASecondOneIsAStop) {
  State waiting;
  EXPECT_TRUE(has(step(waiting, Event::kDrainWish), Action::kBeginStop));
  State running = state_after({Event::kStart});
  EXPECT_EQ(actions_of(step(running, Event::kDrainWish)), std::vector{Action::kDrain});
  EXPECT_TRUE(has(step(running, Event::kDrainWish), Action::kBeginStop));
}

TEST(CourseTest, ADrainIsNotCutShortByAnotherNodesEndButByALoss) {
  State state = state_after({Event::kStart, Event::kDrainWish});
  EXPECT_TRUE(actions_of(step(state, Event::kStopJobInPeace)).empty());
  EXPECT_EQ(actions_of(step(state, Event::kStopJob)), std::vector{Action::kStopRanks});
}

TEST(CourseTest, ANodeThatHasDrainedTakesNoPartInTheNextRound) {
  State state = state_after({Event::kStart, Event::kDrainWish, Event::kEndedWell});
  EXPECT_EQ(state.phase, Phase::kWaiting);
  EXPECT_EQ(actions_of(step(state, Event::kStart)),
            (std::vector{Action::kTellDrained, Action::kTellGone}));
}

TEST(CourseTest, AStopWhileCommandsRunEndsThemAndTellsTheRanksEndsBeforeIt) {
  Facts facts;
  facts.restarts_left = true;
  State state =
      state_after({Event::kStart, Event::kFailure, Event::kEndedBadly, Event::kCollected}, facts);
  ASSERT_EQ(state.phase, Phase::kPreparing);
  EXPECT_EQ(actions_of(step(state, Event::kStopWish)),
            (std::vector{Action::kBeginStop, Action::kEndCommands, Action::kTellEnds,
                         Action::kTellStop}));
  EXPECT_EQ(state.phase, Phase::kWaiting);
}

// The order of the two is chance: another node ends the job while a rank fails here.
TEST(CourseTest, AFailureHereDoesNotReviveAJobThatEnds) {
  Facts facts;
  facts.restarts_left = true;
  for (const auto& [first, second] :
       {std::pair(Event::kStopJob, Event::kFailure), std::pair(Event::kFailure, Event::kStopJob)}) {
    State state = state_after({Event::kStart, first, second}, facts);
    State stopped = state;
    EXPECT_TRUE(has(step(stopped, Event::kStopWish), Action::kBeginLateStop));
    step(state, Event::kEndedBadly);
    EXPECT_EQ(actions_of(step(state, Event::kCollected)), std::vector{Action::kTellEnds})
        << "commands before a round that will not be";
  }
}

TEST(CourseTest, AGuardThatDiesBetweenRoundsIsMissedWhenTheNextOneBegins) {
  State state = state_after({Event::kStart, Event::kStopRound, Event::kEndedBadly,
                             Event::kGuardGone, Event::kCollected, Event::kPrepared});
  EXPECT_EQ(actions_of(step(state, Event::kStart)), std::vector{Action::kQuit});
  for (int event = 0; event < kEvents; ++event)
    EXPECT_TRUE(actions_of(step(state, static_cast<Event>(event))).empty()) << event;
}

TEST(CourseTest, ASecondStopAfterTheJobWaitsForNobody) {
  State state = state_after({Event::kStart, Event::kEndedWell, Event::kSucceeded});
  EXPECT_EQ(state.phase, Phase::kLeaving);
  EXPECT_TRUE(has(step(state, Event::kStopWish), Action::kBeginLateStop));
  EXPECT_EQ(actions_of(step(state, Event::kStopWish)), std::vector{Action::kQuit});
}

}  // namespace
}  // namespace dtrun::launcher::course
