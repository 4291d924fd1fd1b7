#include "planned_bytes.h"

#include "collective_operation.h"
#include "planned_call.h"
#include "shared_pieces.h"
#include "shared_plan.h"

namespace dtrun::collectives::cpu {
namespace {

std::uint64_t bytes_laid(const SharedPlan& plan) {
  std::uint64_t bytes = 0;
  for (std::int64_t step = 0; step < plan.steps(); ++step)
    plan.for_each_laid(step, [&](const Buffer&, const SharedPlan::Piece& piece, int, int readers) {
      bytes += bytes_of(plan, piece) * static_cast<std::size_t>(readers);
    });
  return bytes;
}

std::uint64_t bytes_of_messages(const Schedule& schedule) {
  std::uint64_t bytes = 0;
  for (const Step& step : schedule.steps)
    for (const Transfer& send : step.sends) bytes += send.slice.bytes;
  return bytes;
}

std::vector<Buffer> buffers_of(const std::vector<std::int64_t>& counts, tensors::DType dtype) {
  std::vector<Buffer> buffers;
  for (const std::int64_t count : counts)
    buffers.push_back({.data = nullptr, .count = count, .dtype = dtype});
  return buffers;
}

}  // namespace

PlannedPlace planned_place(int rank, const std::vector<int>& machines, int cores) {
  PlannedPlace place{.rank = rank, .group = {}, .machines = machine_lists(machines)};
  place.group.ranks = static_cast<int>(machines.size());
  place.group.machines = static_cast<int>(place.machines.size());
  if (place.group.ranks > 1 && place.group.machines == 1) {
    place.group.sharing = Sharing::all;
    place.group.ranks_per_core = (place.group.ranks - 1) / cores + 1;
  }
  return place;
}

std::uint64_t planned_bytes(const PlannedCall& call, const PlannedPlace& place) {
  require_sound(call, place.rank, place.group.ranks);
  if (place.group.ranks == 1) return 0;
  Fingerprint print;
  print.kind = call.kind;
  print.dtype = call.dtype;
  print.root = call.root;
  const std::vector<Buffer> inputs = buffers_of(call.inputs, call.dtype);
  const std::vector<Buffer> outputs = buffers_of(call.outputs, call.dtype);
  const CollectiveView collective{print, inputs, outputs};
  const Situation situation = situation_of(collective, place.group, place.crowding, place.limits);
  const Way way = choose_way(situation);
  if (way == Way::post || way == Way::stages)
    return bytes_laid(SharedPlan(collective, place.rank, situation, way));
  // Parts that go by parcels are those that messages would bring.
  const bool by_messages = way == Way::in_place_or_messages || way == Way::parcels;
  return bytes_of_messages(
      make_schedule(shape_of(collective, place.rank, situation,
                             by_messages ? way_of_messages(situation) : way, place.machines)));
}

}  // namespace dtrun::collectives::cpu

namespace dtrun::collectives {

std::int64_t bytes_on_one_machine(const PlannedCall& call, int rank, int ranks) {
  const std::vector<int> machines(static_cast<std::size_t>(ranks), 0);
  return static_cast<std::int64_t>(
      cpu::planned_bytes(call, cpu::planned_place(rank, machines, ranks)));
}

}  // namespace dtrun::collectives
