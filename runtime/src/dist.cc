#include "dtrun/runtime/dist.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "current_world.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/available_backends.h"
#include "dtrun/collectives/default_group.h"
#include "exit_warning.h"

namespace dtrun::dist {
namespace {

using base::Error;
using base::ErrorCode;

// What init_process_group() makes and destroy_process_group() ends.
struct World {
  explicit World(runtime::Worker joined) : worker(std::move(joined)), open(worker.rank()) {
    collectives::set_default_group(&worker.world());
  }
  ~World() { collectives::set_default_group(nullptr); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  runtime::Worker worker;
  runtime::OpenWorld open;
  int groups_made = 0;
  std::map<std::string, int> splits;  ///< of a group, by its name: not all ranks make them
};

enum class Phase { never_initialized, initialized, destroyed };

struct Current {
  std::optional<World> world;
  Phase phase = Phase::never_initialized;
  int worlds_begun = 0;
  // The thread ends, and with the main thread the program.
  ~Current() {
    if (world) world->open.warn();
  }
};

thread_local Current current;

World& current_world() {
  if (current.world) return *current.world;
  if (current.phase == Phase::destroyed)
    throw Error(ErrorCode::kUsage, "the default process group has been destroyed", "",
                "call dist::destroy_process_group() last, or dist::init_process_group() again");
  throw Error(ErrorCode::kUsage, "the default process group has not been initialized", "",
              "call dist::init_process_group() first, on this thread");
}

}  // namespace

void leave_world_at_exit() {
  if (!current.world) return;
  current.world->open.warn();
  current.world.reset();
}

void drop_world() {
  current.world.reset();
}

const ProcessGroup& chosen(const ProcessGroup& group) {
  const ProcessGroup& all = world();
  // A group that has a name and is not valid is one that this rank is not in: its use is an error,
  // and not a call in the world.
  const bool given = group.valid() || !group.name().empty();
  return given ? group : all;
}

int find_in(const ProcessGroup& group, int global_rank) {
  const std::vector<int>& ranks = group.global_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

Error not_in_group(const ProcessGroup& group, int global_rank) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("rank {} is not in {}", global_rank, group.to_string()), "",
               "dist:: names ranks by their global rank, also within a group");
}

void init_process_group(InitProcessGroup options) {
  if (current.world)
    throw Error(ErrorCode::kUsage, "trying to initialize the default process group twice", "",
                "call dist::destroy_process_group() first");
  runtime::InitOptions init;
  init.backend = std::move(options.backend);
  init.init_method = std::move(options.init_method);
  init.rank = options.rank;
  init.world_size = options.world_size;
  init.timeout = options.timeout;
  // It is part of the keys in the store (docs/protocols.md), so a world never meets the cards of an
  // earlier one.
  init.generation = current.worlds_begun++;
  current.world.emplace(runtime::init(std::move(init)));
  current.phase = Phase::initialized;
}

void destroy_process_group() {
  current_world();
  current.world.reset();
  current.phase = Phase::destroyed;
}

void destroy_process_group(const ProcessGroup& group) {
  const ProcessGroup& left = chosen(group);
  if (left == world()) return destroy_process_group();
  left.shutdown();
}

bool is_initialized() {
  return current.world.has_value();
}

runtime::Worker& current_worker() {
  return current_world().worker;
}
const ProcessGroup& world() {
  return current_worker().world();
}
tensors::Device device() {
  return current_worker().device();
}

int get_rank(const ProcessGroup& group) {
  const ProcessGroup& meant = chosen(group);
  return meant.valid() ? meant.rank() : -1;
}
int get_world_size(const ProcessGroup& group) {
  const ProcessGroup& meant = chosen(group);
  return meant.valid() ? meant.size() : -1;
}
std::string get_backend(const ProcessGroup& group) {
  return chosen(group).backend_name();
}
void set_timeout(base::Deadline::Duration timeout, const ProcessGroup& group) {
  chosen(group).set_timeout(timeout);
}
collectives::CallCounters call_counters(const ProcessGroup& group) {
  return chosen(group).call_counters();
}
void set_call_timing(CallTiming timing, const ProcessGroup& group) {
  chosen(group).set_call_timing(timing);
}
void abort(const ProcessGroup& group, const std::string& reason) {
  (group.valid() ? group : chosen(group)).abort(reason);
}
std::vector<int> get_process_group_ranks(const ProcessGroup& group) {
  return chosen(group).global_ranks();
}

int get_group_rank(const ProcessGroup& group, int global_rank) {
  const int rank = find_in(chosen(group), global_rank);
  if (rank < 0) throw not_in_group(chosen(group), global_rank);
  return rank;
}

int get_global_rank(const ProcessGroup& group, int group_rank) {
  const std::vector<int>& ranks = chosen(group).global_ranks();
  if (group_rank < 0 || static_cast<std::size_t>(group_rank) >= ranks.size())
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no group rank {} in {}",
                                                         group_rank, chosen(group).to_string()));
  return ranks[static_cast<std::size_t>(group_rank)];
}

bool is_backend_available(const std::string& backend) {
  return collectives::is_backend_available(backend);
}
bool is_nccl_available() {
  return is_backend_available("nccl");
}
bool is_gloo_available() {
  return is_backend_available("gloo");
}
bool is_mpi_available() {
  return is_backend_available("mpi");
}

namespace {

/// By a call that all ranks of the world make: they count alike.
ProcessGroup made_groups(const std::vector<std::vector<int>>& lists, NewGroup options,
                         const Site& site) {
  const int number = current_world().groups_made++;
  const std::string name =
      options.name.empty() ? fmt::format("group-{}", number) : std::move(options.name);
  return world().split(lists, name, {.backend = options.backend, .timeout = options.timeout}, site);
}

}  // namespace

ProcessGroup new_group(std::vector<int> ranks, NewGroup options, Site site) {
  if (ranks.empty()) {
    ranks.resize(static_cast<std::size_t>(world().size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  std::sort(ranks.begin(), ranks.end());
  return made_groups({ranks}, std::move(options), site);
}

Subgroups new_subgroups(int group_size, NewGroup options, Site site) {
  const int ranks = world().size();
  const int size = group_size == 0 ? current_worker().local_world_size() : group_size;
  if (size < 1 || ranks % size != 0) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      fmt::format("new_subgroups of {} ranks each in a world of {}", size, ranks),
                      "all of them have one size", "a divisor of the world's size");
  }
  std::vector<std::vector<int>> lists(static_cast<std::size_t>(ranks / size));
  for (int rank = 0; rank < ranks; ++rank)
    lists[static_cast<std::size_t>(rank / size)].push_back(rank);
  return new_subgroups_by_enumeration(std::move(lists), std::move(options), site);
}

Subgroups new_subgroups_by_enumeration(std::vector<std::vector<int>> ranks_per_subgroup_list,
                                       NewGroup options, Site site) {
  for (std::vector<int>& list : ranks_per_subgroup_list) std::sort(list.begin(), list.end());
  const ProcessGroup current = made_groups(ranks_per_subgroup_list, std::move(options), site);
  return {current, std::move(ranks_per_subgroup_list)};
}

ProcessGroup split_group(const std::vector<std::vector<int>>& split_ranks,
                         const ProcessGroup& parent, NewGroup options, Site site) {
  const ProcessGroup& whole = chosen(parent);
  const int number = current_world().splits[whole.name()]++;
  const std::string name = options.name.empty() ? fmt::format("{}-split-{}", whole.name(), number)
                                                : std::move(options.name);
  return whole.split(split_ranks, name, {.backend = options.backend, .timeout = options.timeout},
                     site);
}

ProcessGroup shrink_group(const std::vector<int>& ranks_to_exclude, const ProcessGroup& group,
                          ShrinkGroup options) {
  const ProcessGroup& whole = chosen(group);
  collectives::ShrinkOptions given{.timeout = options.timeout, .name = std::move(options.name)};
  for (const int rank : ranks_to_exclude)
    given.excluded_ranks.push_back(get_group_rank(whole, rank));
  return whole.shrink(std::move(given));
}

dtensor::DeviceMesh init_device_mesh(const std::string& device_type, std::vector<int> shape,
                                     std::vector<std::string> axis_names) {
  return {world(), std::move(shape), std::move(axis_names),
          tensors::Device::parse(device_type).type};
}

}  // namespace dtrun::dist
