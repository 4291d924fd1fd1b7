#include "cpu_backend.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collective_operation.h"
#include "direct_operation.h"
#include "point_to_point.h"
#include "schedule.h"

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

std::vector<std::int64_t> counts_of(const std::vector<Buffer>& buffers) {
  std::vector<std::int64_t> counts;
  for (const Buffer& buffer : buffers) counts.push_back(buffer.count);
  return counts;
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
  if (engine_->drive() != Drivable::Outcome::idle) engine_->drive_in_background();
  return Work(operation);
}

Work CpuBackend::run(OpKind kind, int root, std::vector<Buffer> inputs, std::vector<Buffer> outputs,
                     Call call) {
  if (engine_->goes_direct(call.fingerprint, inputs, outputs)) {
    auto operation =
        std::make_shared<DirectOperation>(engine_, engine_->meeting(), std::move(call),
                                          CollectiveBuffers{std::move(inputs), std::move(outputs)});
    engine_->submit_collective(operation);
    return finish(operation);
  }
  CollectiveShape shape;
  shape.kind = kind;
  shape.rank = rank();
  shape.size = size();
  shape.root = root;
  shape.item_bytes = tensors::item_size(call.fingerprint.dtype);
  shape.input_counts = counts_of(inputs);
  shape.output_counts = counts_of(outputs);
  auto operation = std::make_shared<CollectiveOperation>(
      engine_, std::move(call), make_schedule(shape),
      CollectiveBuffers{std::move(inputs), std::move(outputs)}, size());
  engine_->submit_collective(operation);
  return finish(operation);
}

Work CpuBackend::broadcast(Buffer buffer, int source, Call call) {
  return run(OpKind::broadcast, source, {}, {buffer}, std::move(call));
}
Work CpuBackend::all_reduce(Buffer input, Buffer output, ReduceOp, Call call) {
  return run(OpKind::all_reduce, -1, {input}, {output}, std::move(call));
}
Work CpuBackend::reduce(Buffer input, Buffer output, int destination, ReduceOp, Call call) {
  return run(OpKind::reduce, destination, {input}, {output}, std::move(call));
}
Work CpuBackend::all_gather(Buffer input, std::vector<Buffer> outputs, Call call) {
  return run(OpKind::all_gather, -1, {input}, std::move(outputs), std::move(call));
}
Work CpuBackend::gather(Buffer input, std::vector<Buffer> outputs, int destination, Call call) {
  return run(OpKind::gather, destination, {input}, std::move(outputs), std::move(call));
}
Work CpuBackend::scatter(Buffer output, std::vector<Buffer> inputs, int source, Call call) {
  return run(OpKind::scatter, source, std::move(inputs), {output}, std::move(call));
}
Work CpuBackend::reduce_scatter(Buffer output, std::vector<Buffer> inputs, ReduceOp, Call call) {
  return run(OpKind::reduce_scatter, -1, std::move(inputs), {output}, std::move(call));
}
Work CpuBackend::all_to_all(std::vector<Buffer> outputs, std::vector<Buffer> inputs, Call call) {
  return run(OpKind::all_to_all, -1, std::move(inputs), std::move(outputs), std::move(call));
}
Work CpuBackend::barrier(Call call) {
  return run(OpKind::barrier, -1, {}, {}, std::move(call));
}

Work CpuBackend::send(Buffer buffer, int destination, std::uint32_t tag, Call call) {
  auto operation =
      std::make_shared<SendOperation>(engine_, std::move(call), buffer, destination, tag);
  engine_->submit_send(operation);
  return finish(operation);
}

Work CpuBackend::receive(Buffer buffer, int source, std::uint32_t tag, Call call) {
  std::vector<int> sources = {source};
  if (source < 0) {
    sources.resize(static_cast<std::size_t>(size()));
    std::iota(sources.begin(), sources.end(), 0);
    std::erase(sources, rank());
  }
  auto operation = std::make_shared<ReceiveOperation>(engine_, std::move(call), buffer, source, tag,
                                                      std::move(sources));
  engine_->submit_receive(operation);
  return finish(operation);
}

/// Of the new group's members on this machine this rank is the first.
bool CpuBackend::keeps_table(const std::vector<int>& ranks) const {
  for (const int rank_in_parent : ranks) {
    const int world_rank = engine_->spec().world_ranks[static_cast<std::size_t>(rank_in_parent)];
    if (engine_->world()->shares_memory(world_rank)) return rank_in_parent == rank();
  }
  return false;
}

std::unique_ptr<Backend> CpuBackend::split(const std::vector<int>& ranks, int list_index,
                                           const std::string& name, Call call) {
  const std::uint64_t sequence = call.fingerprint.sequence;
  const std::shared_ptr<World>& world = engine_->world();
  // Memory for a group that will not be is never given back; a forked child has none to give.
  engine_->require_open();
  static_assert(sizeof(GroupMemory) == 2 * sizeof(std::uint64_t));
  GroupMemory own;
  try {
    if (!ranks.empty())
      own = world->make_group_memory(
          ranks.size(), keeps_table(ranks) ? World::Keeps::block_and_table : World::Keeps::block);
  } catch (const base::Error& error) {
    // The peers are on their way into the exchange below: they must not wait for this rank.
    engine_->reject(call.fingerprint, error);
    throw;
  }
  std::vector<GroupMemory> memory(static_cast<std::size_t>(size()));
  std::vector<Buffer> outputs;
  for (GroupMemory& of_member : memory) outputs.push_back({&of_member, 2, call.fingerprint.dtype});
  run(OpKind::split, -1, {{&own, 2, call.fingerprint.dtype}}, std::move(outputs), std::move(call));
  if (ranks.empty()) return nullptr;
  GroupSpec spec;
  spec.id = child_group_id(engine_->spec().id, sequence, list_index);
  spec.name = name;
  for (const int rank_in_parent : ranks) {
    if (rank_in_parent == rank()) spec.rank = static_cast<int>(spec.world_ranks.size());
    const std::size_t index = static_cast<std::size_t>(rank_in_parent);
    spec.world_ranks.push_back(engine_->spec().world_ranks[index]);
    spec.memory.push_back(memory[index]);
  }
  return std::make_unique<CpuBackend>(world, std::move(spec), timeout_);
}

bool CpuBackend::run_now(const Fingerprint& fingerprint, std::span<const Buffer> inputs,
                         std::span<const Buffer> outputs, base::Deadline::Duration timeout) {
  return engine_->run_now(fingerprint, inputs, outputs, timeout);
}

void CpuBackend::reject(const Fingerprint& fingerprint, const base::Error& error) {
  engine_->reject(fingerprint, error);
}

}  // namespace dtrun::collectives::cpu
