// A generation's keys stand under "name/generation/". all_gather: each rank's value, read by all
// with one multi_get. barrier: each rank's mark, by which the absent can be named, and a counter
// whose last comer sets "passed", for which all others wait.
//
// Whoever has finished generation g knows that all ranks have begun it, so that none still reads
// what stood under g - 1: each rank deletes its own keys of g - 1 then.
#include "dtrun/rendezvous/store_collectives.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>

#include "wire/answer_deadline.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;

constexpr std::string_view kBarrier = "barrier";
constexpr std::string_view kAllGather = "all_gather";
constexpr std::size_t kMostRanksNamed = 32;

}  // namespace

StoreCollectives::StoreCollectives(std::shared_ptr<Store> store, std::string name, int rank,
                                   int world)
    : store_(std::move(store)), name_(std::move(name)), rank_(rank), world_(world) {
  if (rank < 0 || rank >= world)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} is not in a world of {}", rank, world));
}

std::string StoreCollectives::key_of(std::string_view kind, int rank) const {
  return fmt::format("{}/{}/{}/{}", name_, generation_, kind, rank);
}

template <typename Action>
auto StoreCollectives::guarded(Action action) {
  if (failed_) throw Error(*failed_);
  try {
    auto result = action();
    ++generation_;
    return result;
  } catch (const Error& error) {
    failed_ = error;
    throw;
  }
}

std::vector<std::string> StoreCollectives::all_gather(std::string_view value, Deadline deadline) {
  return guarded([&] {
    const auto begin = Deadline::Clock::now();
    const std::string mine = key_of(kAllGather, rank_);
    store_->set(mine, value, deadline);
    std::vector<std::string> keys;
    for (int rank = 0; rank < world_; ++rank) keys.push_back(key_of(kAllGather, rank));
    try {
      std::vector<std::string> values = store_->multi_get(keys, deadline);
      leave_behind({mine}, deadline);
      return values;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      throw nobody_came(kAllGather, Deadline::Clock::now() - begin);
    }
  });
}

void StoreCollectives::barrier(Deadline deadline) {
  guarded([&] {
    const auto begin = Deadline::Clock::now();
    const std::string mine = key_of(kBarrier, rank_);
    const std::string prefix = fmt::format("{}/{}/", name_, generation_);
    std::vector<std::string> keys = {mine};
    store_->set(mine, "", deadline);
    if (store_->add(prefix + "arrived", 1, deadline) == world_) {
      store_->set(prefix + "passed", "", deadline);
      keys.insert(keys.end(), {prefix + "arrived", prefix + "passed"});
    } else {
      try {
        store_->wait({prefix + "passed"}, deadline);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) throw;
        throw nobody_came(kBarrier, Deadline::Clock::now() - begin);
      }
    }
    leave_behind(std::move(keys), deadline);
    return true;
  });
}

void StoreCollectives::leave_behind(std::vector<std::string> keys, Deadline deadline) {
  for (const std::string& key : std::exchange(old_keys_, std::move(keys)))
    store_->delete_key(key, deadline);
}

// By halves: a few that are absent among many cost few questions.
std::vector<int> StoreCollectives::absent(std::string_view kind, Deadline deadline) {
  std::vector<int> result;
  std::vector<std::pair<int, int>> open = {{0, world_}};
  while (!open.empty() && result.size() <= kMostRanksNamed) {
    const auto [begin, end] = open.back();
    open.pop_back();
    std::vector<std::string> keys;
    for (int rank = begin; rank < end; ++rank) keys.push_back(key_of(kind, rank));
    if (store_->check(keys, deadline)) continue;
    if (end - begin == 1) {
      result.push_back(begin);
      continue;
    }
    const int middle = begin + (end - begin) / 2;
    open.emplace_back(middle, end);
    open.emplace_back(begin, middle);
  }
  return result;
}

Error StoreCollectives::nobody_came(std::string_view kind, Deadline::Duration waited) {
  std::string who;
  try {
    const std::vector<int> ranks = absent(kind, Deadline::after(kCourtesyBudget));
    const bool more = ranks.size() > kMostRanksNamed;
    who = ranks.empty() ? "all ranks have come just after that"
                        : fmt::format("rank {} of {} {} not come", fmt::join(ranks, ", "), world_,
                                      more                ? "and others have"
                                      : ranks.size() == 1 ? "has"
                                                          : "have");
  } catch (const Error& error) {
    who = "it is unknown which ranks have not come: " + error.summary();
  }
  return Error(ErrorCode::kTimeout,
               fmt::format("{} '{}' (its call {}): rank {} has waited {} for the others", kind,
                           name_, generation_ + 1, rank_, base::format_duration(waited)),
               who, "look at those ranks: they may have died, be late, or be in another call");
}

}  // namespace dtrun::rendezvous
