// The subgroups of a ProcessGroup.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "group_call.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;
using RankLists = std::vector<std::vector<int>>;

namespace {

/// Index of the list that holds `rank`; -1: none.
int find_list(const RankLists& lists, int rank) {
  for (std::size_t i = 0; i < lists.size(); ++i)
    if (std::find(lists[i].begin(), lists[i].end(), rank) != lists[i].end())
      return static_cast<int>(i);
  return -1;
}

void check_lists(const GroupShape& group, const RankLists& lists) {
  std::vector<bool> seen(static_cast<std::size_t>(group.size));
  for (const std::vector<int>& list : lists) {
    for (const int rank : list) {
      require_rank(group, rank, "a rank of the split");
      if (seen[static_cast<std::size_t>(rank)])
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("rank {} stands twice in the lists of a split", rank), "",
                    "lists must not overlap; split twice for groups that do");
      seen[static_cast<std::size_t>(rank)] = true;
    }
  }
}

void check_members(const GroupShape& group, const std::vector<int>& ranks, const std::string& name,
                   const base::CallSite& site) {
  check_lists(group, {ranks});
  if (std::ranges::find(ranks, group.rank) != ranks.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("rank {} is no member of the group '{}' that it asks for at {}:{}",
                          group.rank, name, site.file_name(), site.line()),
              fmt::format("its ranks are {}", fmt::join(ranks, ", ")),
              "only the members make a subgroup; split() is for all ranks");
}

std::uint64_t hash_lists(const RankLists& lists, const std::string& name,
                         const std::string& backend) {
  std::string text = fmt::format("{}\n{}", name, backend);
  for (const std::vector<int>& list : lists) text += fmt::format(";{}", fmt::join(list, ","));
  return hash_bytes(text);
}

/// Options of the group of those ranks of the parent. @param meeting_place the members' own
GroupOptions child_options(const GroupCore& parent, const std::vector<int>& ranks,
                           const std::string& name, const std::string& meeting_place) {
  GroupOptions child = parent.options();
  child.name = name;
  child.timeout = parent.timeout();
  child.global_ranks.clear();
  for (const int member : ranks) {
    if (member == parent.rank()) child.rank = static_cast<int>(child.global_ranks.size());
    child.global_ranks.push_back(parent.options().global_ranks[static_cast<std::size_t>(member)]);
  }
  if (!ranks.empty())
    child.store = rendezvous::make_prefix_store(meeting_place, parent.options().store);
  return child;
}

/// The members of every list from the parent's backends.
BackendSet split_backends(const GroupCore& parent, const Call& call, const std::vector<int>& ranks,
                          int list, const std::string& name) {
  BackendSet set;
  using tensors::DeviceType;
  // Where there are two, they share one call, which is timed once.
  const auto part = [&] {
    return Call{.fingerprint = call.fingerprint, .deadline = call.deadline};
  };
  if (Backend* cpu = parent.backend_of(DeviceType::cpu))
    set.cpu = cpu->split(ranks, list, name, part());
  if (Backend* cuda = parent.backend_of(DeviceType::cuda))
    set.cuda = cuda->split(ranks, list, name, part());
  return set;
}

}  // namespace

ProcessGroup ProcessGroup::split(const RankLists& rank_lists, const std::string& new_name,
                                 SplitOptions options, Site site) const {
  const CallOptions defaults;
  GroupCall call(core(), OpKind::split, defaults, site);
  BackendSpec spec = core_->spec();
  call.print.dtype = tensors::DType::i64;
  call.check([&](const GroupShape& group) {
    check_lists(group, rank_lists);
    if (options.timeout) require_timeout(*options.timeout, fmt::format("group '{}'", new_name));
    if (options.backend) spec = parse_backend_spec(*options.backend);
  });
  const std::string backend = spec.to_string();
  call.print.counts = hash_lists(rank_lists, new_name, backend);
  const std::uint64_t sequence = call.print.sequence;
  const int list = find_list(rank_lists, rank());
  const std::vector<int> ranks =
      list < 0 ? std::vector<int>() : rank_lists[static_cast<std::size_t>(list)];
  // The name holds the first member, which differs between the lists of one call.
  GroupOptions child =
      child_options(*core_, ranks, new_name,
                    fmt::format("split/{}/{}", sequence, ranks.empty() ? -1 : ranks.front()));
  child.timeout = options.timeout.value_or(child.timeout);
  child.backend = backend;
  BackendSet backends;
  if (backend == backend_name()) {
    Call taken = call.take(0);
    backends = split_backends(*core_, taken, ranks, list, new_name);
    taken.timer.end(CallTimer::Outcome::done);
  } else {
    // All ranks must pass the same lists before some of them wait for each other in the store. For
    // the backends this is a barrier.
    call.print.kind = OpKind::barrier;
    call.run(std::span<const LocalTensor>(), std::span<const LocalTensor>());
    call.settle();
    if (list >= 0) backends = make_backends(child);
  }
  if (list < 0) {
    ProcessGroup group;
    group.stranger_to_ = new_name;
    return group;
  }
  auto made = std::make_shared<GroupCore>(std::move(child), std::move(spec), std::move(backends));
  made->meter().set_timing(core_->meter().timing());
  return ProcessGroup(std::move(made));
}

ProcessGroup ProcessGroup::shared_split(const RankLists& rank_lists, const std::string& new_name,
                                        Site site) const {
  return core().subgroups().get(rank_lists, [&] { return split(rank_lists, new_name, {}, site); });
}

ProcessGroup ProcessGroup::subgroup(const std::vector<int>& ranks, const std::string& new_name,
                                    Site site) const {
  GroupCore& parent = core();
  parent.require_open(OpKind::split);
  check_members(parent.shape(parent.main_backend().device_type()), ranks, new_name, site);
  if (static_cast<int>(ranks.size()) == size() && std::ranges::is_sorted(ranks)) return *this;
  return parent.subgroups().get({ranks}, [&] {
    const std::uint64_t list = hash_bytes(fmt::format("{}", fmt::join(ranks, ",")));
    GroupOptions child =
        child_options(parent, ranks, new_name, fmt::format("subgroup/{}.{:x}", ranks.size(), list));
    child.backend = backend_name();
    ProcessGroup made = create(std::move(child));
    made.set_call_timing(parent.meter().timing());
    return made;
  });
}

}  // namespace dtrun::collectives
