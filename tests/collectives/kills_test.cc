// Ranks killed from outside at random moments inside all kinds of collectives, by all ways: every
// survivor names the dead one in time, and ends. How many there are and the seed are the build's.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/promptness.h"
#include "support/rank_processes.h"

namespace dtrun::collectives {
namespace {

using base::Deadline;
using tensors::LocalTensor;
using test::RankProcesses;

constexpr int kKilledRanks = 4;

/// What a rank calls with.
struct Tensors {
  explicit Tensors(std::int64_t count) : one(tensors::ones({count})) {
    for (int i = 0; i < kKilledRanks; ++i) {
      given.push_back(tensors::ones({count}));
      taken.push_back(tensors::zeros({count}));
    }
  }
  LocalTensor one;
  std::vector<LocalTensor> given, taken;
  std::vector<LocalTensor> at(bool here, const std::vector<LocalTensor>& list) const {
    return here ? list : std::vector<LocalTensor>{};
  }
};

struct Kind {
  const char* name;
  /// @param root takes turns
  void (*call)(const ProcessGroup& group, const Tensors& mine, int root);
};

const Kind kKinds[] = {
    {"all_reduce", [](const ProcessGroup& group, const Tensors& mine,
                      int) { group.all_reduce(mine.one, ReduceOp::max); }},
    {"reduce", [](const ProcessGroup& group, const Tensors& mine,
                  int root) { group.reduce(mine.one, root, ReduceOp::max); }},
    {"broadcast", [](const ProcessGroup& group, const Tensors& mine,
                     int root) { group.broadcast(mine.one, root); }},
    {"all_gather", [](const ProcessGroup& group, const Tensors& mine,
                      int) { group.all_gather(mine.taken, mine.one); }},
    {"reduce_scatter", [](const ProcessGroup& group, const Tensors& mine,
                          int) { group.reduce_scatter(mine.one, mine.given); }},
    {"gather",
     [](const ProcessGroup& group, const Tensors& mine, int root) {
       group.gather(mine.one, mine.at(group.rank() == root, mine.taken), root);
     }},
    {"scatter",
     [](const ProcessGroup& group, const Tensors& mine, int root) {
       group.scatter(mine.one, mine.at(group.rank() == root, mine.given), root);
     }},
    {"all_to_all", [](const ProcessGroup& group, const Tensors& mine,
                      int) { group.all_to_all(mine.taken, mine.given); }},
    {"barrier", [](const ProcessGroup& group, const Tensors&, int) { group.barrier(); }},
    {"send_recv",
     [](const ProcessGroup& group, const Tensors& mine, int) {
       const int rank = group.rank(), size = group.size();
       const Work receive = group.irecv(mine.taken[0], (rank + size - 1) % size);
       group.send(mine.one, (rank + 1) % size);
       receive.wait();
     }},
    {"async all_reduces",
     [](const ProcessGroup& group, const Tensors& mine, int) {
       std::vector<Work> works;
       for (const LocalTensor& tensor : mine.given)
         works.push_back(group.all_reduce(tensor, ReduceOp::max, {.async = true}));
       for (const Work& work : works) work.wait();
     }},
};

/// f32: one, by posts or rounds, by stages, and by chunks, machines or messages.
constexpr std::int64_t kKilledCounts[] = {1, 1500, 40'000, 500'000};

struct KillPlace {
  const char* name;
  test::RankOptions options;
};
const KillPlace kKillPlaces[] = {
    {"shared memory", {}},
    {"mixed", {.machines = {2}}},
    {"tcp", {.transport = Transport::tcp}},
    {"in place", {.shared_memory = true}},
    {"mixed, one and three, two connections", {.machines = {1}, .connections_per_peer = 2}},
    {"rings alone", {.single_copy = SingleCopy::never}},
    {"mixed, by machines alone",
     {.machines = {2}, .costs = R"({"collectives": {"machines_bytes": 1, "rounds_bytes": 0,
                                   "whole_reduce_bytes": 0}})"}},
    {"no posts", {.costs = R"({"collectives": {"post_bytes": 0, "all_posts_bytes": 0}})"}},
};

struct Kill {
  const Kind& kind;
  std::int64_t count;
  const KillPlace& place;
  RankProcesses::Guard guard;
  int victim;
  std::chrono::microseconds delay;

  std::string describe() const {
    return std::string(kind.name) + " of " + std::to_string(count) + " f32, " + place.name +
           (guard == RankProcesses::Guard::job_page ? ", with" : ", without") +
           " a job page: rank " + std::to_string(victim) + " is killed after " +
           std::to_string(delay.count()) + " us";
  }
};

/// The n-th of them, so that few are of many sorts; what is left is drawn.
Kill kill_of(unsigned n, std::mt19937& random) {
  constexpr unsigned kStep = 131;  // a prime: all sorts come before one comes again
  unsigned sort = n * kStep;
  const auto next = [&sort](unsigned choices) {
    const unsigned chosen = sort % choices;
    sort /= choices;
    return chosen;
  };
  const auto sorts =
      static_cast<unsigned>(std::size(kKinds) * std::size(kKilledCounts) * std::size(kKillPlaces));
  sort %= sorts;
  const Kind& kind = kKinds[next(std::size(kKinds))];
  const KillPlace& place = kKillPlaces[next(std::size(kKillPlaces))];
  const std::int64_t count = kKilledCounts[next(std::size(kKilledCounts))];
  constexpr unsigned kLongestDelay = 3000;
  return {kind,
          count,
          place,
          random() % 2 == 0 ? RankProcesses::Guard::job_page : RankProcesses::Guard::none,
          static_cast<int>(random() % kKilledRanks),
          std::chrono::microseconds(random() % kLongestDelay)};
}

/// Where each rank shows the test what it does.
struct Progress {
  std::atomic<int> ended_calls[kKilledRanks];
  std::atomic<bool> in_call[kKilledRanks];
};
std::shared_ptr<Progress> shared_progress() {
  void* const memory =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {new (memory) Progress{},
          [](Progress* progress) { ::munmap(progress, sizeof *progress); }};
}

void call_for_ever(const Kill& kill, const ProcessGroup& group, Progress& progress) {
  const std::shared_ptr<tensors::HostAllocator> memory =
      kill.place.options.shared_memory ? group.shared_memory() : nullptr;
  std::optional<tensors::HostAllocatorScope> scope;
  if (memory) scope.emplace(*memory);
  const Tensors mine(kill.count);
  for (int step = 0;; ++step) {
    progress.in_call[group.rank()] = true;
    kill.kind.call(group, mine, step % group.size());
    progress.in_call[group.rank()] = false;
    progress.ended_calls[group.rank()] = step + 1;
  }
}

/// @return whether the victim was in a call when it died
bool run_kill(const Kill& kill) {
  const std::shared_ptr<Progress> progress = shared_progress();
  {
    RankProcesses ranks(kKilledRanks, kill.place.options, kill.guard,
                        [&](const ProcessGroup& group) { call_for_ever(kill, group, *progress); });
    const Deadline begun = Deadline::after(std::chrono::seconds(60));
    for (const std::atomic<int>& calls : progress->ended_calls)
      while (calls == 0) {
        if (begun.expired()) {
          ADD_FAILURE() << "a rank has ended no call";
          return false;
        }
        ::sched_yield();
      }
    const auto moment = std::chrono::steady_clock::now() + kill.delay;
    while (std::chrono::steady_clock::now() < moment) ::sched_yield();
    const std::string victim =
        "rank " + std::to_string(kill.victim) + " (pid " + std::to_string(ranks.pid(kill.victim));
    ranks.signal(kill.victim, SIGKILL);
    EXPECT_EQ(ranks.wait(kill.victim).status, SIGKILL);
    const auto death = std::chrono::steady_clock::now();
    for (int rank = 0; rank < kKilledRanks; ++rank) {
      if (rank == kill.victim) continue;
      const RankProcesses::Ended ended = ranks.wait(rank);
      EXPECT_EQ(ended.status, 0) << "rank " << rank;
      if (!ended.thrown.has_value()) {
        ADD_FAILURE() << "rank " << rank << " has thrown nothing";
        continue;
      }
      EXPECT_EQ(ended.thrown->code, base::ErrorCode::kPeerFailed) << ended.thrown->text;
      EXPECT_TRUE(ended.thrown->text.starts_with(victim))
          << "rank " << rank << ": " << ended.thrown->text;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - death, testing_support::kPatience);
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
  EXPECT_EQ(errno, ECHILD);
  return progress->in_call[kill.victim];
}

TEST(KillsTest, ARankKilledInsideACollectiveIsNamedByEverySurvivorInTime) {
  constexpr int kKills = DTRUN_COLLECTIVE_KILLS;
  constexpr unsigned kSeed = DTRUN_COLLECTIVE_KILL_SEED;
  std::printf("%d kills inside collectives, seed %u\n", kKills, kSeed);
  std::mt19937 random(kSeed);
  int inside = 0, all = 0;
  std::map<std::string, int> by_kind, by_place;
  for (; inside < kKills && all < 2 * kKills; ++all) {
    const Kill kill = kill_of(static_cast<unsigned>(all), random);
    SCOPED_TRACE("kill " + std::to_string(all) + ": " + kill.describe());
    const bool was_inside = run_kill(kill);
    if (HasFailure()) break;
    if (!was_inside) continue;
    ++inside;
    ++by_kind[kill.kind.name];
    ++by_place[kill.place.name];
  }
  EXPECT_EQ(inside, kKills) << "of " << all;
  std::printf("%d of %d were inside\n", inside, all);
  for (const auto& counts : {by_kind, by_place})
    for (const auto& [name, count] : counts) std::printf("%6d %s\n", count, name.c_str());
}

}  // namespace
}  // namespace dtrun::collectives
