#include "bench/way_limits.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dtrun::bench {
namespace {

using collectives::kDefaultLimits;
using collectives::WayLimits;

constexpr std::size_t kNever = std::size_t{1} << 40;
constexpr std::size_t kMostInRounds = 1 << 20;
constexpr int kTurns = 3;
constexpr std::size_t kPostSizes[] = {64,      256,      1 << 10,  2 << 10,  4 << 10,
                                      8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10};
/// Of two ranks, an all_reduce goes by posts up to so many times that limit.
constexpr std::size_t kTimesOfTwo = 8;
constexpr std::size_t kMessageSizes[] = {1 << 10,  4 << 10,   8 << 10,   16 << 10, 32 << 10,
                                         64 << 10, 128 << 10, 256 << 10, 512 << 10};

std::vector<double> least_of(std::vector<double> a, std::span<const double> b) {
  std::ranges::transform(a, b, a.begin(), [](double x, double y) { return std::min(x, y); });
  return a;
}

/// The least time of each of them and of each size: they take turns, so that a moment of other work
/// hits none of them alone.
std::vector<std::vector<double>> in_turns(std::span<const WayLimits> all,
                                          std::span<const std::size_t> sizes,
                                          const TimesWith& times) {
  std::vector<std::vector<double>> least;
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<double> now = times(all[i], sizes);
      if (turn == 0)
        least.push_back(std::move(now));
      else
        least[i] = least_of(std::move(least[i]), now);
    }
  return least;
}

WayLimits limits_of_posts(const JobPlace& place, const TimesWith& times) {
  WayLimits posts;
  posts.all_posts_bytes = kNever;
  WayLimits stages;
  stages.post_bytes = stages.all_posts_bytes = 0;
  const std::size_t times_as_high = place.ranks == 2 ? kTimesOfTwo : 1;
  std::span<const std::size_t> sizes(kPostSizes);
  while (sizes.back() > times_as_high * kDefaultLimits.post_bytes)
    sizes = sizes.first(sizes.size() - 1);
  const auto both = in_turns(std::vector{posts, stages}, sizes, times);
  const std::size_t best = best_limit(sizes, both[0], both[1]) / times_as_high;
  WayLimits limits;
  const auto ranks = static_cast<std::size_t>(place.ranks);
  // With so many ranks that limit comes first.
  const bool all_count = ranks * kDefaultLimits.post_bytes > kDefaultLimits.all_posts_bytes;
  (all_count ? limits.all_posts_bytes : limits.post_bytes) = all_count ? best * ranks : best;
  return limits;
}

/// Neither rounds nor machines.
WayLimits messages_alone(std::size_t whole_reduce_bytes) {
  WayLimits limits;
  limits.rounds_bytes = limits.all_rounds_bytes = 0;
  limits.machines_bytes = kNever;
  limits.whole_reduce_bytes = whole_reduce_bytes;
  return limits;
}

WayLimits limits_of_messages(const JobPlace& place, const TimesWith& times) {
  std::vector<WayLimits> ways = {messages_alone(kNever), messages_alone(0)};
  const bool has_machines = place.machines < place.ranks;
  if (has_machines) {
    ways.push_back(messages_alone(0));
    ways.back().rounds_bytes = kMostInRounds;
    ways.back().all_rounds_bytes = kNever;
    ways.push_back(messages_alone(0));
    ways.back().machines_bytes = 1;
  }
  const auto all = in_turns(ways, kMessageSizes, times);
  WayLimits limits;
  limits.whole_reduce_bytes = best_limit(kMessageSizes, all[0], all[1]);
  if (!has_machines) return limits;
  const std::vector<double> messages = least_of(all[0], all[1]);
  const std::vector<double>& rounds = all[2];
  const std::vector<double>& machines = all[3];
  limits.rounds_bytes = best_limit(kMessageSizes, rounds, least_of(messages, machines));
  limits.all_rounds_bytes = std::max(limits.all_rounds_bytes,
                                     limits.rounds_bytes * static_cast<std::size_t>(place.ranks));
  limits.machines_bytes = best_limit(kMessageSizes, least_of(messages, rounds), machines) + 1;
  return limits;
}

}  // namespace

std::size_t best_limit(std::span<const std::size_t> sizes, std::span<const double> first,
                       std::span<const double> second) {
  double sum = 0;
  for (const double time : second) sum += std::log(time);
  double least = sum;
  std::size_t best = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sum += std::log(first[i]) - std::log(second[i]);
    if (sum >= least) continue;
    least = sum;
    best = sizes[i];
  }
  return best;
}

WayLimits measure_limits(const JobPlace& place, const TimesWith& times) {
  if (place.ranks == 1) return {};
  return place.machines == 1 ? limits_of_posts(place, times) : limits_of_messages(place, times);
}

}  // namespace dtrun::bench
