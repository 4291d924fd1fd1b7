// Fake workers: they run for a while, end well or badly, take their time to stop, and cannot get on
// without one another.
#include <algorithm>

#include "words.h"
#include "world.h"

namespace dtrun::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

int failure_code(const WorkerGroup& group) {
  return 1 + group.round / 2 % kFailureCodes;
}

}  // namespace

bool World::is_broken(const WorkerGroup& group) const {
  return broken_.contains({group.head_life, group.round});
}

rounds::JobFailure World::failure_of(const WorkerGroup& group) const {
  rounds::JobFailure failure;
  failure.rank = group.node;
  failure.node_rank = group.node;
  failure.code = failure_code(group);
  failure.host = nodes_[static_cast<std::size_t>(group.node)].plan.host;
  return failure;
}

// What it would come to if nobody stopped it.
void World::group_fate(std::size_t number) {
  WorkerGroup& group = groups_[number];
  if (group.phase != WorkerGroup::Phase::kRunning) return;
  Node& node = nodes_[static_cast<std::size_t>(group.node)];
  if (node.pause == Pause::kMachine)
    return arrange(node.pause_end + milliseconds(1), Happening::kGroupFate, group.node,
                   static_cast<std::int64_t>(number));
  const bool broken = is_broken(group);
  // With a peer gone they fail, or hang until they are stopped.
  if (broken && random_.chance(500)) return;
  const bool calm = now_ >= scenario_.faults_until;
  if (broken || (!calm && random_.chance(scenario_.failing_permille))) {
    if (!broken) ++tally_.faults[static_cast<std::size_t>(Fault::kWorkerFailure)];
    end_group(number, now_ + random_.between(milliseconds(1), milliseconds(300)));
    arrange_news(now_, Happening::kTellFailed, group.node, static_cast<std::int64_t>(number));
    return;
  }
  group.succeeded = true;
  group_gone(number);
}

void World::end_group(std::size_t number, Moment at) {
  WorkerGroup& group = groups_[number];
  if (group.phase == WorkerGroup::Phase::kGone) return;
  if (group.phase == WorkerGroup::Phase::kEnding && group.gone_at <= at) return;
  group.phase = WorkerGroup::Phase::kEnding;
  group.gone_at = at;
  broken_.insert({group.head_life, group.round});
  arrange(at, Happening::kGroupGone, group.node, static_cast<std::int64_t>(number));
}

void World::group_gone(std::size_t number) {
  WorkerGroup& group = groups_[number];
  if (group.phase == WorkerGroup::Phase::kGone) return;
  if (group.phase == WorkerGroup::Phase::kEnding && now_ < group.gone_at) return;
  Node& node = nodes_[static_cast<std::size_t>(group.node)];
  if (node.pause == Pause::kMachine && node.powered) {
    group.gone_at = node.pause_end + milliseconds(1);
    return arrange(group.gone_at, Happening::kGroupGone, group.node,
                   static_cast<std::int64_t>(number));
  }
  group.phase = WorkerGroup::Phase::kGone;
  trace_.line(now_, "node {}: workers of round {} are gone{}", group.node, group.round,
              group.succeeded ? ", all well" : "");
  referee_.workers_gone(group);
  std::erase(node.groups, number);
  if (node.running && node.life == group.life)
    arrange_news(now_, Happening::kTellGone, group.node, static_cast<std::int64_t>(number));
}

// Their agent, or its machine, is dead.
void World::kill_groups(int index, Moment latest) {
  for (const std::size_t group : std::vector(nodes_[static_cast<std::size_t>(index)].groups))
    end_group(group, random_.between(now_, latest));
}

void World::tell_gone(int index, std::size_t number) {
  const WorkerGroup& group = groups_[number];
  using How = rounds::WorkersGone::How;
  member_event(index, rounds::WorkersGone{
                          group.round, group.succeeded ? How::kAllSucceeded : How::kOtherwise, {}});
}

void World::tell_failed(int index, std::size_t number) {
  const WorkerGroup& group = groups_[number];
  member_event(index, rounds::WorkersFailed{group.round, failure_of(group)});
}

void World::store_opens(int index, int round) {
  if (now_ < scenario_.faults_until && random_.chance(scenario_.store_failing_permille)) {
    ++tally_.faults[static_cast<std::size_t>(Fault::kStoreFailure)];
    return member_event(index, rounds::StoreFailed{round, "no port is free"});
  }
  member_event(index, rounds::StoreOpened{round, "", 40000 + round % 1000});
}

}  // namespace dtrun::simulation
