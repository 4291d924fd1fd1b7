#include "cpu_backend.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collective_operation.h"
#include "dtrun/base/error.h"
#include "planned_bytes.h"
#include "point_to_point.h"
#include "shared_operation.h"

namespace dtrun::collectives::cpu {

namespace {

constexpr std::uint64_t kRootGroup = 1;

/// Members of a split know the parent, the call and their list: so all get the same id.
std::uint64_t child_group_id(std::uint64_t parent, std::uint64_t sequence, int list_index) {
  std::uint64_t id = 0xcbf29ce484222325;
  for (const std::uint64_t part : {parent, sequence, static_cast<std::uint64_t>(list_index)})
    for (int byte = 0; byte < 8; ++byte) id = (id ^ ((part >> (8 * byte)) & 0xff)) * 0x100000001b3;
  return id;
}

}  // namespace

std::unique_ptr<CpuBackend> CpuBackend::create(const GroupOptions& options) {
  std::shared_ptr<World> world = World::create(options);
  GroupSpec spec;
  spec.id = kRootGroup;
  spec.name = options.name;
  spec.rank = options.rank;
  spec.world_ranks.resize(options.global_ranks.size());
  std::iota(spec.world_ranks.begin(), spec.world_ranks.end(), 0);
  spec.memory.assign(spec.world_ranks.size(), world->root_memory());
  return std::make_unique<CpuBackend>(std::move(world), std::move(spec), options.timeout);
}

CpuBackend::CpuBackend(std::shared_ptr<World> world, GroupSpec spec,
                       base::Deadline::Duration timeout)
    : timeout_(timeout),
      engine_(std::make_shared<GroupEngine>(std::move(world), std::move(spec), timeout)) {}

// Before the engine's last handle can be one that a Work holds: the group is left now.
CpuBackend::~CpuBackend() {
  engine_->shutdown();
}

Work CpuBackend::finish(const std::shared_ptr<Operation>& operation) {
  if (!operation->call().async) {
    engine_->wait(*operation, base::Deadline::never());
    return operation->source_rank() < 0 ? Work() : Work(operation);
  }
  // Short operations are done before another thread could have been woken.
  if (engine_->drive_for_owner() != Drivable::Outcome::idle) engine_->drive_in_background();
  return Work(operation);
}

Work CpuBackend::start(Collective collective) {
  const Situation situation = engine_->situation_of(collective.view());
  const Way way = choose_algorithm(situation).way;
  if (engine_->says_ways()) engine_->log_way(collective.view(), situation, way);
  std::shared_ptr<Operation> operation;
  if (begins_by_posts(way)) {
    operation = std::make_shared<SharedOperation>(engine_, std::move(collective), situation, way);
  } else {
    operation = make_collective_operation(engine_, std::move(collective), situation, way);
  }
  engine_->submit_collective(operation);
  return finish(operation);
}

Work CpuBackend::start(Message message) {
  return finish(submit(std::move(message)));
}

void CpuBackend::exchange_now(std::span<ShortMessage> messages) {
  engine_->exchange_now(messages);
}

// Ranks that exchange do so at the same time mostly: what is short is here before another thread
// could have been woken.
std::vector<Work> CpuBackend::exchange(std::vector<Message> messages) {
  constexpr std::size_t kShort = 64 << 10;
  bool are_short = true;
  std::vector<std::shared_ptr<Operation>> operations;
  operations.reserve(messages.size());
  for (Message& message : messages) {
    are_short &= message.buffer.bytes() <= kShort;
    operations.push_back(submit(std::move(message)));
  }
  const bool are_done = are_short ? engine_->drive_a_while(operations)
                                  : engine_->drive_for_owner() == Drivable::Outcome::idle;
  if (!are_done) engine_->drive_in_background();
  return {operations.begin(), operations.end()};
}

std::shared_ptr<Operation> CpuBackend::submit(Message message) {
  if (message.kind == OpKind::send) {
    auto send = std::make_shared<SendOperation>(engine_, std::move(message.call), message.buffer,
                                                message.peer, message.tag);
    engine_->submit_send(send);
    return send;
  }
  std::vector<int> sources = {message.peer};
  if (message.peer < 0) {
    sources.resize(static_cast<std::size_t>(size()));
    std::iota(sources.begin(), sources.end(), 0);
    std::erase(sources, rank());
  }
  auto receive =
      std::make_shared<ReceiveOperation>(engine_, std::move(message.call), message.buffer,
                                         message.peer, message.tag, std::move(sources));
  engine_->submit_receive(receive);
  return receive;
}

/// Of the new group's members on this machine the first keeps the table.
World::Keeps CpuBackend::kept_for(const std::vector<int>& world_ranks) const {
  const World& world = *engine_->world();
  const auto first = std::ranges::find_if(
      world_ranks, [&](int world_rank) { return world.shares_memory(world_rank); });
  if (first == world_ranks.end() || *first != world.rank()) return World::Keeps::block;
  return world.all_linked(world_ranks) ? World::Keeps::table_with_posts : World::Keeps::table;
}

std::unique_ptr<Backend> CpuBackend::split(const std::vector<int>& ranks, int list_index,
                                           const std::string& name, Call call) {
  const std::uint64_t sequence = call.fingerprint.sequence;
  const std::shared_ptr<World>& world = engine_->world();
  // Memory for a group that will not be is never given back; a forked child has none to give.
  engine_->require_open();
  static_assert(sizeof(GroupMemory) == 2 * sizeof(std::uint64_t));
  GroupSpec spec;
  for (const int rank_in_parent : ranks)
    spec.world_ranks.push_back(
        engine_->spec().world_ranks[static_cast<std::size_t>(rank_in_parent)]);
  GroupMemory own;
  try {
    if (!ranks.empty()) own = world->make_group_memory(ranks.size(), kept_for(spec.world_ranks));
  } catch (const base::Error& error) {
    // The peers are on their way into the exchange below: they must not wait for this rank.
    engine_->reject(call.fingerprint, error);
    throw;
  }
  std::vector<GroupMemory> memory(static_cast<std::size_t>(size()));
  // An all_gather by another name: who splits meets those who do.
  const tensors::DType dtype = call.fingerprint.dtype;
  Collective exchange{{{&own, 2, dtype}}, {}, std::move(call)};
  for (GroupMemory& of_member : memory) exchange.outputs.push_back({&of_member, 2, dtype});
  start(std::move(exchange));
  if (ranks.empty()) return nullptr;
  spec.id = child_group_id(engine_->spec().id, sequence, list_index);
  spec.name = name;
  for (const int rank_in_parent : ranks) {
    if (rank_in_parent == rank()) spec.rank = static_cast<int>(spec.memory.size());
    spec.memory.push_back(memory[static_cast<std::size_t>(rank_in_parent)]);
  }
  return std::make_unique<CpuBackend>(world, std::move(spec), timeout_);
}

bool CpuBackend::run_now(const CollectiveView& collective, base::Deadline::Duration timeout) {
  return engine_->run_now(collective, timeout);
}

void CpuBackend::reject(const Fingerprint& fingerprint, const base::Error& error) {
  engine_->reject(fingerprint, error);
}

std::optional<std::int64_t> CpuBackend::bytes_to_send(const PlannedCall& call) const {
  std::vector<int> machines = engine_->machines();
  int rank = engine_->spec().rank;
  if (!call.members.empty()) {
    const auto own = std::ranges::find(call.members, rank);
    std::vector<int> members;
    for (const int member : call.members) {
      if (own == call.members.end() || member < 0 || member >= size())
        throw base::Error(base::ErrorCode::kInvalidArgument, "the members of a planned call",
                          "they are ranks of the group, and this rank is one of them",
                          "those of a group that this rank would be in");
      members.push_back(machines[static_cast<std::size_t>(member)]);
    }
    rank = static_cast<int>(own - call.members.begin());
    machines = std::move(members);
  }
  const World& world = *engine_->world();
  PlannedPlace place = planned_place(rank, machines, world.cores());
  place.crowding = world.crowding();
  place.limits = world.costs().limits();
  return static_cast<std::int64_t>(planned_bytes(call, place));
}

}  // namespace dtrun::collectives::cpu
