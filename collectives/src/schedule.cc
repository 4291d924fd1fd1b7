// Whoever combines elements does so in rank order, or by machine in rank order: the result is the
// same on every rank and in every run.
#include "schedule.h"

#include <map>
#include <utility>

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

/// Combines what has come into `rows` with this rank's own part, in rank order.
LocalWork combine(const CollectiveShape& shape, const Deliveries& all, std::vector<Slice> rows) {
  const std::int64_t count = shape.output_counts[0];
  // Rows are in rank order, too.
  rows.insert(rows.begin() + all.own_place(), input(shape, all.own_input(), count));
  return {LocalWork::Kind::combine, output(shape, 0, count), std::move(rows)};
}

/// @param counts of a list of buffers
std::int64_t count_of(const std::vector<std::int64_t>& counts, int index) {
  return index == Deliveries::kNoBuffer ? 0 : counts[static_cast<std::size_t>(index)];
}

Schedule deliver(const CollectiveShape& shape) {
  const Deliveries all(shape.kind, shape.rank, shape.size, shape.root, shape.empty_parts);
  Schedule schedule;
  Step step;
  for (int i = 0; i < all.sends(); ++i) {
    const auto [peer, index] = all.send(i);
    const std::int64_t elements = count_of(shape.input_counts, index);
    if (all.travels(elements == 0)) step.sends.push_back({peer, input(shape, index, elements)});
  }
  std::vector<Slice> rows;
  for (int i = 0; i < all.receives(); ++i) {
    const auto [peer, index] = all.receive(i);
    if (all.combines()) {
      const std::size_t bytes = bytes_of(shape, shape.output_counts[0]);
      rows.push_back({Region::scratch, 0, schedule.scratch_bytes, bytes});
      schedule.scratch_bytes += all.row_bytes(bytes);
      step.receives.push_back({peer, rows.back()});
      continue;
    }
    const std::int64_t elements = count_of(shape.output_counts, index);
    if (all.travels(elements == 0)) step.receives.push_back({peer, output(shape, index, elements)});
  }
  if (all.combines() && shape.output_counts[0] != 0)
    step.local.push_back(combine(shape, all, std::move(rows)));
  if (all.copies_own()) {
    const std::int64_t own = count_of(shape.input_counts, all.own_input());
    if (own != 0)
      step.beside.push_back({LocalWork::Kind::copy,
                             output(shape, all.own_output(), own),
                             {input(shape, all.own_input(), own)}});
  }
  schedule.steps.push_back(std::move(step));
  return schedule;
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
  DT_CHECK(!is_message(shape.kind) && shape.kind != OpKind::none);
  return deliver(shape);
}

}  // namespace dtrun::collectives
