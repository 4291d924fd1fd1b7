#include "ranks/timing.h"

#include <fmt/core.h>
#include <time.h>

#include <vector>

namespace dtrun::launcher {
namespace {

struct Step {
  const char* key;
  const char* what;
  std::int64_t from;
  std::int64_t to;
};

std::vector<Step> steps_of(const Timing& t) {
  return {{"exec", "exec and libraries, CPU time before main", t.main - t.exec_cpu, t.main},
          {"parse", "options read", t.main, t.options_read},
          {"plan", "plan made", t.options_read, t.planned},
          {"guard", "guard forked", t.planned, t.guard_started},
          {"rendezvous", "nodes have met", t.guard_started, t.round_opened},
          {"order", "guard has its order", t.round_opened, t.spawn_began},
          {"spawn_first", "first rank runs", t.spawn_began, t.first_spawned},
          {"spawn_rest", "last rank runs", t.first_spawned, t.last_spawned},
          {"store_first", "first rank is at the store, from the round's beginning", t.round_opened,
           t.first_at_store},
          {"store_all", "as many clients as ranks are, from the round's beginning", t.round_opened,
           t.all_at_store},
          {"run", "ranks of the last round have ended", t.last_spawned, t.ranks_ended},
          {"end", "end", t.ranks_ended, t.end}};
}

double in_milliseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

std::int64_t read_clock(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

}  // namespace

void StoreArrivals::begin_round(int world_size) {
  if (++rounds_ == 1) world_size_ = world_size;
}

void StoreArrivals::add(std::int64_t now) {
  if (rounds_ > 1) return;
  if (clients_++ == 0) first_ = now;
  if (clients_ == world_size_) all_ = now;
}

Timing joined(Timing main, const Timing& agent) {
  main.round_opened = agent.round_opened;
  main.spawn_began = agent.spawn_began;
  main.first_spawned = agent.first_spawned;
  main.last_spawned = agent.last_spawned;
  main.first_at_store = agent.first_at_store;
  main.all_at_store = agent.all_at_store;
  main.ranks_ended = agent.ranks_ended;
  return main;
}

std::int64_t now_ns() {
  return read_clock(CLOCK_MONOTONIC);
}

std::int64_t cpu_before_main() {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

std::string timing_text(const Timing& timing, int local_ranks) {
  std::string text =
      fmt::format("dtrun: timing of {} local ranks, ms: took, over after\n", local_ranks);
  for (const Step& step : steps_of(timing))
    text += step.from == 0 || step.to == 0
                ? fmt::format("  {:>10} {:>10}  {}\n", "-", "-", step.what)
                : fmt::format("  {:>10.3f} {:>10.3f}  {}\n", in_milliseconds(step.to - step.from),
                              in_milliseconds(step.to - timing.main), step.what);
  return text;
}

std::string timing_json(const Timing& timing, int local_ranks) {
  std::string text = fmt::format("{{\"local_ranks\":{}", local_ranks);
  for (const Step& step : steps_of(timing))
    text += step.from == 0 || step.to == 0
                ? fmt::format(",\"{}_ms\":null", step.key)
                : fmt::format(",\"{}_ms\":{:.3f}", step.key, in_milliseconds(step.to - step.from));
  return text + "}\n";
}

}  // namespace dtrun::launcher
