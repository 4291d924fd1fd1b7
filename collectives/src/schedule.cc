// Elements are combined in rank order by whichever rank combines them: the result is the same on
// every rank and in every run.
#include "schedule.h"

#include "chunk.h"
#include "dtrun/base/check.h"

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

void add_copy(Step& step, Slice destination, Slice source) {
  if (source.bytes != 0) step.local.push_back({LocalWork::Kind::copy, destination, {source}});
}

Schedule broadcast(const CollectiveShape& shape) {
  Step step;
  if (shape.rank == shape.root) {
    const Slice whole = input(shape, 0, shape.input_counts[0]);
    for_each_peer(shape, [&](int peer) { step.sends.push_back({peer, whole}); });
  } else {
    step.receives.push_back({shape.root, output(shape, 0, shape.output_counts[0])});
  }
  return {{std::move(step)}, 0};
}

Slice part(const CollectiveShape& shape, Region region, Chunk chunk) {
  return {region, 0, bytes_of(shape, chunk.begin), bytes_of(shape, chunk.size())};
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

/// Every owner receives its chunk from all and combines it. Pieces come from `source`; the result
/// lands in the same place of `destination`.
Step reduce_chunks(const CollectiveShape& shape, Region source, Region destination,
                   std::int64_t count, Schedule& schedule) {
  Step step;
  for_each_peer(shape, [&](int peer) {
    step.sends.push_back({peer, part(shape, source, chunk_of(count, shape.size, peer))});
  });
  const Chunk mine = chunk_of(count, shape.size, shape.rank);
  receive_and_combine(shape, step, part(shape, source, mine), part(shape, destination, mine),
                      schedule);
  return step;
}

Schedule all_reduce(const CollectiveShape& shape) {
  const std::int64_t count = shape.input_counts[0];
  if (shape.way != Way::chunks) return all_reduce_whole(shape);
  Schedule schedule;
  schedule.steps.push_back(reduce_chunks(shape, Region::input, Region::output, count, schedule));
  Step share;
  const Slice mine = part(shape, Region::output, chunk_of(count, shape.size, shape.rank));
  for_each_peer(shape, [&](int peer) {
    share.sends.push_back({peer, mine});
    share.receives.push_back(
        {peer, part(shape, Region::output, chunk_of(count, shape.size, peer))});
  });
  schedule.steps.push_back(std::move(share));
  return schedule;
}

Schedule reduce(const CollectiveShape& shape) {
  const std::int64_t count = shape.input_counts[0];
  const bool is_root = shape.rank == shape.root;
  Schedule schedule;
  if (shape.way != Way::chunks) {
    Step step;
    if (is_root) {
      receive_and_combine(shape, step, input(shape, 0, count), output(shape, 0, count), schedule);
    } else {
      step.sends.push_back({shape.root, input(shape, 0, count)});
    }
    schedule.steps.push_back(std::move(step));
    return schedule;
  }
  // Owners keep their combined chunk in scratch: only the root has an output, and inputs must not
  // change.
  Step combine = reduce_chunks(shape, Region::input, Region::output, count, schedule);
  const Chunk mine = chunk_of(count, shape.size, shape.rank);
  Step collect;
  if (is_root) {
    for_each_peer(shape, [&](int peer) {
      collect.receives.push_back(
          {peer, part(shape, Region::output, chunk_of(count, shape.size, peer))});
    });
  } else {
    const Slice result{Region::scratch, 0, schedule.scratch_bytes, bytes_of(shape, mine.size())};
    schedule.scratch_bytes += result.bytes;
    for (LocalWork& step : combine.local) step.destination = result;
    collect.sends.push_back({shape.root, result});
  }
  schedule.steps.push_back(std::move(combine));
  schedule.steps.push_back(std::move(collect));
  return schedule;
}

Schedule all_gather(const CollectiveShape& shape) {
  Step step;
  const Slice own = input(shape, 0, shape.input_counts[0]);
  for_each_peer(shape, [&](int peer) {
    step.sends.push_back({peer, own});
    step.receives.push_back(
        {peer, output(shape, peer, shape.output_counts[static_cast<std::size_t>(peer)])});
  });
  add_copy(step, output(shape, shape.rank, shape.input_counts[0]), own);
  return {{std::move(step)}, 0};
}

Schedule gather(const CollectiveShape& shape) {
  Step step;
  const Slice own = input(shape, 0, shape.input_counts[0]);
  if (shape.rank != shape.root) {
    step.sends.push_back({shape.root, own});
    return {{std::move(step)}, 0};
  }
  for_each_peer(shape, [&](int peer) {
    step.receives.push_back(
        {peer, output(shape, peer, shape.output_counts[static_cast<std::size_t>(peer)])});
  });
  add_copy(step, output(shape, shape.rank, shape.input_counts[0]), own);
  return {{std::move(step)}, 0};
}

Schedule scatter(const CollectiveShape& shape) {
  Step step;
  const Slice own = output(shape, 0, shape.output_counts[0]);
  if (shape.rank != shape.root) {
    step.receives.push_back({shape.root, own});
    return {{std::move(step)}, 0};
  }
  for_each_peer(shape, [&](int peer) {
    step.sends.push_back(
        {peer, input(shape, peer, shape.input_counts[static_cast<std::size_t>(peer)])});
  });
  add_copy(step, own, input(shape, shape.rank, shape.output_counts[0]));
  return {{std::move(step)}, 0};
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

Schedule all_to_all(const CollectiveShape& shape) {
  Step step;
  for_each_peer(shape, [&](int peer) {
    const std::size_t index = static_cast<std::size_t>(peer);
    step.sends.push_back({peer, input(shape, peer, shape.input_counts[index])});
    step.receives.push_back({peer, output(shape, peer, shape.output_counts[index])});
  });
  const std::int64_t mine = shape.input_counts[static_cast<std::size_t>(shape.rank)];
  add_copy(step, output(shape, shape.rank, mine), input(shape, shape.rank, mine));
  return {{std::move(step)}, 0};
}

Schedule barrier(const CollectiveShape& shape) {
  Step step;
  for_each_peer(shape, [&](int peer) {
    step.sends.push_back({peer, input(shape, 0, 0)});
    step.receives.push_back({peer, output(shape, 0, 0)});
  });
  return {{std::move(step)}, 0};
}

}  // namespace

Schedule make_schedule(const CollectiveShape& shape) {
  switch (shape.kind) {
    case OpKind::broadcast:
      return broadcast(shape);
    case OpKind::all_reduce:
      return all_reduce(shape);
    case OpKind::reduce:
      return reduce(shape);
    case OpKind::all_gather:
    case OpKind::split:
      return all_gather(shape);
    case OpKind::gather:
      return gather(shape);
    case OpKind::scatter:
      return scatter(shape);
    case OpKind::reduce_scatter:
      return reduce_scatter(shape);
    case OpKind::all_to_all:
      return all_to_all(shape);
    case OpKind::barrier:
      return barrier(shape);
    case OpKind::none:
    case OpKind::send:
    case OpKind::receive:
    case OpKind::monitored_barrier:
      break;
  }
  DT_CHECK(false);
  return {};
}

}  // namespace dtrun::collectives
