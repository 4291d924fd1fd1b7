// Sorting lines: tiles of 1024 in shared memory by Batcher's bitonic network (1968), then merges of
// neighbouring runs, where each element looks for its place in the other run. Every element is a
// key, that is ordered as its dtype's numbers are, and its position: no two are equal, so that any
// order of the same steps is a stable one.
#include <algorithm>
#include <bit>
#include <limits>

#include "cuda/any_element.h"
#include "cuda/for_each_team.h"
#include "cuda/index.h"
#include "cuda/line_layout.h"

namespace dtrun::tensors::cuda {
namespace {

struct SortItem {
  std::uint64_t key;
  std::int64_t position;

  DTRUN_BOTH bool before(const SortItem& other) const {
    return key < other.key || (key == other.key && position < other.position);
  }
};

constexpr std::uint64_t kSignBit = std::uint64_t{1} << 63;

/// 0 and -0 are equal, nan is the greatest.
DTRUN_BOTH std::uint64_t sort_key(double value) {
  if (value != value) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value);
  return (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
}
DTRUN_BOTH std::uint64_t sort_key(std::int64_t value) {
  return static_cast<std::uint64_t>(value) ^ kSignBit;
}

/// The lines that are sorted: operand 0 the values, 1 the positions, 2 the source.
struct SortLines {
  LineLayout<3> layout;  ///< of the results' shape, but of the source's length
  std::int64_t kept;
  void* values;
  std::int64_t* positions;
  const void* source;
  DType dtype;
  SortOrder order;

  DTRUN_BOTH SortItem load(std::int64_t line, std::int64_t i) const {
    const std::int64_t place = layout.others.offsets(line).of[2] + i * layout.steps[2];
    const bool is_floating =
        dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
    const std::uint64_t key = is_floating
                                  ? sort_key(load_floating<double>(source, dtype, place))
                                  : sort_key(load_number<std::int64_t>(source, dtype, place));
    return {order == SortOrder::ascending ? key : ~key, i};
  }
};

constexpr int kSortTile = 1024;

/// Item: so many tiles of `slots` (a power of two) as a team holds. Of each the first ones are
/// kept.
struct SortTiles {
  struct Shared {
    SortItem items[kSortTile];
  };
  SortLines lines;
  const SortItem* source;  ///< [lines, length]; nullptr: the tensor's elements
  SortItem* target;        ///< [lines, kept_length]
  std::int64_t length;
  std::int64_t tiles;  ///< of a line
  std::int64_t kept;   ///< of a tile
  std::int64_t kept_length;
  int slots;

  struct Place {
    std::int64_t line, tile, slot;
  };
  DTRUN_BOTH Place place_of(std::int64_t item, int i) const {
    const Division tile = divide(item * (kSortTile / slots) + i / slots, tiles);
    return {tile.quotient, tile.remainder, i % slots};
  }

  DTRUN_BOTH SortItem load(std::int64_t item, int i) const {
    const Place place = place_of(item, i);
    const std::int64_t position = place.tile * kSortTile + place.slot;
    if (place.line >= lines.layout.lines || position >= length) {
      return {std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::int64_t>::max()};
    }
    return source != nullptr ? source[place.line * length + position]
                             : lines.load(place.line, position);
  }

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    team.each_thread([&](int thread, Shared& shared) {
      for (int i = thread; i < kSortTile; i += kThreads) shared.items[i] = load(item, i);
    });
    for (int size = 2; size <= slots; size *= 2) {
      for (int distance = size / 2; distance > 0; distance /= 2) {
        team.each_thread([&](int thread, Shared& shared) {
          for (int pair = thread; pair < kSortTile / 2; pair += kThreads) {
            const int i = 2 * pair - (pair & (distance - 1));
            SortItem& left = shared.items[i];
            SortItem& right = shared.items[i + distance];
            const bool ascending = (i & (slots - 1) & size) == 0;
            if (ascending ? right.before(left) : left.before(right)) {
              const SortItem other = left;
              left = right;
              right = other;
            }
          }
        });
      }
    }
    team.each_thread([&](int thread, Shared& shared) {
      for (int i = thread; i < kSortTile; i += kThreads) {
        const Place place = place_of(item, i);
        const std::int64_t to = place.tile * kept + place.slot;
        if (place.line >= lines.layout.lines || place.slot >= kept || to >= kept_length) continue;
        target[place.line * kept_length + to] = shared.items[i];
      }
    });
  }
};

/// Index: an element of [lines, length], which is sorted in runs of `run`.
struct MergeRuns {
  const SortItem* source;
  SortItem* target;
  std::int64_t length;
  std::int64_t run;

  DTRUN_BOTH void operator()(std::int64_t index) const {
    const Division element = divide(index, length);
    const std::int64_t line = element.quotient;
    const std::int64_t i = element.remainder;
    const SortItem* const from = source + line * length;
    const std::int64_t own = i / run * run;
    const std::int64_t pair = i / (2 * run) * (2 * run);
    std::int64_t low = own == pair ? pair + run : pair;
    std::int64_t high = low + run < length ? low + run : length;
    if (low > high) low = high;
    const std::int64_t first = low;
    const SortItem item = from[i];
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (from[middle].before(item)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    target[line * length + pair + (i - own) + (low - first)] = item;
  }
};

/// Index: an element of [lines, kept].
struct DeliverSorted {
  SortLines lines;
  const SortItem* items;
  std::int64_t length;
  std::size_t item_bytes;

  DTRUN_BOTH void operator()(std::int64_t index) const {
    const Division element = divide(index, lines.kept);
    const std::int64_t line = element.quotient;
    const std::int64_t i = element.remainder;
    const auto start = lines.layout.others.offsets(line);
    const std::int64_t position = items[line * length + i].position;
    move_element(item_bytes, lines.values, start.of[0] + i * lines.layout.steps[0], lines.source,
                 start.of[2] + position * lines.layout.steps[2]);
    lines.positions[start.of[1] + i * lines.layout.steps[1]] = position;
  }
};

/// [lines, length] that are in order.
struct SortedItems {
  LocalTensor memory;
  std::int64_t length;
};

LocalTensor sort_memory(std::int64_t count, Device device) {
  return empty({count * static_cast<std::int64_t>(sizeof(SortItem))}, {DType::u8, device});
}

/// @param source undefined: the tensor's elements
SortedItems sort_tiles(const SortLines& lines, const SortedItems& source, std::int64_t kept,
                       Device device) {
  const std::int64_t tiles = (source.length + kSortTile - 1) / kSortTile;
  int slots = 1;
  while (slots < kSortTile && slots < source.length) slots *= 2;
  const std::int64_t last = source.length - (tiles - 1) * kSortTile;
  const SortedItems result{{}, (tiles - 1) * kept + std::min(kept, last)};
  const LocalTensor memory = sort_memory(lines.layout.lines * result.length, device);
  const std::int64_t a_team = kSortTile / slots;
  for_each_team(
      (lines.layout.lines * tiles + a_team - 1) / a_team,
      SortTiles{lines, source.memory.defined() ? source.memory.data_as<const SortItem>() : nullptr,
                memory.data_as<SortItem>(), source.length, tiles, kept, result.length, slots},
      current_stream(device.index));
  return {memory, result.length};
}

SortedItems merge_runs(const SortLines& lines, SortedItems sorted, Device device) {
  for (std::int64_t run = kSortTile; run < sorted.length; run *= 2) {
    const std::int64_t count = lines.layout.lines * sorted.length;
    const LocalTensor merged = sort_memory(count, device);
    for_each(count,
             MergeRuns{sorted.memory.data_as<const SortItem>(), merged.data_as<SortItem>(),
                       sorted.length, run},
             current_stream(device.index));
    sorted.memory = merged;
  }
  return sorted;
}

}  // namespace

void sort_elements(const LocalTensor& values, const LocalTensor& positions,
                   const LocalTensor& source, int dim, SortOrder order) {
  if (values.numel() == 0) return;
  const Device device = source.device();
  SortLines lines{make_lines<3>(source.shape(), dim,
                                {&values.strides(), &positions.strides(), &source.strides()}),
                  values.shape()[static_cast<std::size_t>(dim)],
                  values.data(),
                  positions.data_as<std::int64_t>(),
                  source.data(),
                  source.dtype(),
                  order};
  SortedItems sorted{{}, lines.layout.length};
  // Of a few that are kept, each tile's are enough for the next round.
  constexpr std::int64_t kFew = kSortTile / 4;
  if (lines.kept <= kFew) {
    do {
      sorted = sort_tiles(lines, sorted, lines.kept, device);
    } while (sorted.length > lines.kept);
  } else {
    sorted = merge_runs(lines, sort_tiles(lines, sorted, kSortTile, device), device);
  }
  for_each(lines.layout.lines * lines.kept,
           DeliverSorted{lines, sorted.memory.data_as<const SortItem>(), sorted.length,
                         item_size(source.dtype())},
           current_stream(device.index));
}

}  // namespace dtrun::tensors::cuda
