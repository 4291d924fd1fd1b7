// Whoever combines elements does so in rank order, or by machine in rank order: the result is the
// same on every rank and in every run.
#include "schedule.h"

#include <map>

#include "deliveries.h"
#include "dtrun/base/check.h"
#include "hierarchical_schedule.h"
#include "round_schedule.h"

namespace dtrun::collectives {

namespace {

std::size_t bytes_of(const CollectiveShape& shape, std::int64_t count) {
  return static_cast<std::size_t>(count) * shape.item_bytes;
}

Slice input(const CollectiveShape& shape, int index, std::int64_t count) {
  return {Region::input, index, 0, bytes_of(shape, count)};
}
Slice output(const CollectiveShape& shape, int index, std::int64_t count) {
  return {Region::output, index, 0, bytes_of(shape, count)};
}

/// Peers in the order of sending, from the right neighbour on, so that not all ranks write to rank
/// 0 first.
template <typename Visit>
void for_each_peer(const CollectiveShape& shape, Visit visit) {
  for (int step = 1; step < shape.size; ++step) visit((shape.rank + step) % shape.size);
}

/// Receives `bytes` from every peer into scratch and combines them with `own` in rank order.
void receive_and_combine(const CollectiveShape& shape, Step& step, Slice own, Slice destination,
                         Schedule& schedule) {
  LocalWork combine{LocalWork::Kind::combine, destination, {}};
  for (int rank = 0; rank < shape.size; ++rank) {
    if (rank == shape.rank) {
      combine.sources.push_back(own);
      continue;
    }
    const Slice received{Region::scratch, 0, schedule.scratch_bytes, own.bytes};
    // Rows start on cache lines, so that pieces of two peers never share one.
    schedule.scratch_bytes += (own.bytes + 63) / 64 * 64;
    step.receives.push_back({rank, received});
    combine.sources.push_back(received);
  }
  if (own.bytes != 0) step.local.push_back(std::move(combine));
}

Schedule all_reduce_whole(const CollectiveShape& shape) {
  Schedule schedule;
  Step step;
  const Slice own = input(shape, 0, shape.input_counts[0]);
  for_each_peer(shape, [&](int peer) { step.sends.push_back({peer, own}); });
  receive_and_combine(shape, step, own, output(shape, 0, shape.output_counts[0]), schedule);
  schedule.steps.push_back(std::move(step));
  return schedule;
}

Schedule reduce_whole(const CollectiveShape& shape) {
  const std::int64_t count = shape.input_counts[0];
  Schedule schedule;
  Step step;
  if (shape.rank == shape.root) {
    receive_and_combine(shape, step, input(shape, 0, count), output(shape, 0, count), schedule);
  } else {
    step.sends.push_back({shape.root, input(shape, 0, count)});
  }
  schedule.steps.push_back(std::move(step));
  return schedule;
}

Schedule deliver(const CollectiveShape& shape) {
  const Deliveries all(shape.kind, shape.rank, shape.size, shape.root, shape.empty_parts);
  const auto count = [](const std::vector<std::int64_t>& counts, int index) {
    return counts[static_cast<std::size_t>(index)];
  };
  Step step;
  for (int i = 0; i < all.sends(); ++i) {
    const auto [peer, index] = all.send(i);
    const std::int64_t elements = count(shape.input_counts, index);
    if (all.travels(elements)) step.sends.push_back({peer, input(shape, index, elements)});
  }
  for (int i = 0; i < all.receives(); ++i) {
    const auto [peer, index] = all.receive(i);
    const std::int64_t elements = count(shape.output_counts, index);
    if (all.travels(elements)) step.receives.push_back({peer, output(shape, index, elements)});
  }
  if (!all.copies_own()) return {{std::move(step)}};
  const std::int64_t own = count(shape.input_counts, all.own_input());
  if (own != 0)
    step.beside.push_back({LocalWork::Kind::copy,
                           output(shape, all.own_output(), own),
                           {input(shape, all.own_input(), own)}});
  return {{std::move(step)}};
}

Schedule reduce_scatter(const CollectiveShape& shape) {
  Schedule schedule;
  Step step;
  for_each_peer(shape, [&](int peer) {
    step.sends.push_back(
        {peer, input(shape, peer, shape.input_counts[static_cast<std::size_t>(peer)])});
  });
  const std::int64_t mine = shape.output_counts[0];
  receive_and_combine(shape, step, input(shape, shape.rank, mine), output(shape, 0, mine),
                      schedule);
  schedule.steps.push_back(std::move(step));
  return schedule;
}

Schedule barrier(const CollectiveShape& shape) {
  Step step;
  for_each_peer(shape, [&](int peer) {
    step.sends.push_back({peer, input(shape, 0, 0)});
    step.receives.push_back({peer, output(shape, 0, 0)});
  });
  return {{std::move(step)}};
}

/// Each rank as a machine of its own.
MachineLists each_alone(int ranks) {
  MachineLists lists;
  for (int rank = 0; rank < ranks; ++rank) lists.push_back({rank});
  return lists;
}

}  // namespace

MachineLists machine_lists(const std::vector<int>& machines) {
  std::map<int, std::size_t> places;
  MachineLists lists;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    const auto [place, is_new] = places.try_emplace(machines[rank], lists.size());
    if (is_new) lists.emplace_back();
    lists[place->second].push_back(static_cast<int>(rank));
  }
  return lists;
}

Schedule make_schedule(const CollectiveShape& shape) {
  if (shape.way == Way::machines) return hierarchical_schedule(shape);
  if (shape.way == Way::rounds) return round_schedule(shape);
  if (shape.way == Way::chunks) {
    const MachineLists machines = each_alone(shape.size);
    CollectiveShape alone = shape;
    alone.machines = &machines;
    return hierarchical_schedule(alone);
  }
  if (Deliveries::make_up(shape.kind)) return deliver(shape);
  switch (shape.kind) {
    case OpKind::all_reduce:
      return all_reduce_whole(shape);
    case OpKind::reduce:
      return reduce_whole(shape);
    case OpKind::reduce_scatter:
      return reduce_scatter(shape);
    case OpKind::barrier:
      return barrier(shape);
    default:
      break;
  }
  DT_CHECK(false);
  return {};
}

}  // namespace dtrun::collectives
