// Scans: many lines by a thread each, one element after the other as on the host; few lines in
// tiles of 2048 by a team each, from what the tiles before sum up to, which is a scan itself.
#include "arithmetic.h"
#include "cuda/any_element.h"
#include "cuda/for_each_team.h"
#include "cuda/line_layout.h"
#include "cuda/reductions.h"

namespace dtrun::tensors::cuda {
namespace {

template <typename A>
DTRUN_BOTH A join_scanned(ScanJoin join, A a, A b) {
  return join == ScanJoin::add ? Add::apply(a, b) : Multiply::apply(a, b);
}

/// Lines and where they begin; operand 0 is the result, 1 the source.
struct ScanLines {
  LineLayout<2> layout;
  void* target;
  const void* source;
  DType target_dtype, source_dtype;
  ScanJoin join;
  ScanFrom from;

  DTRUN_BOTH std::int64_t place(std::int64_t i) const {
    return from == ScanFrom::first ? i : layout.length - 1 - i;
  }
  template <typename A>
  DTRUN_BOTH A load(std::int64_t line_start, std::int64_t i) const {
    return load_number<A>(source, source_dtype, line_start + place(i) * layout.steps[1]);
  }
  template <typename A>
  DTRUN_BOTH void store(std::int64_t line_start, std::int64_t i, A value) const {
    store_number(target, target_dtype, line_start + place(i) * layout.steps[0], value);
  }
};

template <typename A>
struct ScanLine {
  ScanLines lines;

  DTRUN_BOTH void operator()(std::int64_t line) const {
    const auto start = lines.layout.others.offsets(line);
    A running = static_cast<A>(lines.join == ScanJoin::add ? 0 : 1);
    for (std::int64_t i = 0; i < lines.layout.length; ++i) {
      running = join_scanned(lines.join, running, lines.load<A>(start.of[1], i));
      lines.store(start.of[0], i, running);
    }
  }
};

constexpr int kScanEach = 8;  ///< elements of a thread
constexpr std::int64_t kScanTile = kScanEach * static_cast<std::int64_t>(kThreads);

/// Item: a line's tile. With `totals` only what the tile comes to is kept.
template <typename A>
struct ScanTile {
  struct Shared {
    A values[kScanTile];
    A sums[2][kThreads];
  };
  ScanLines lines;
  std::int64_t tiles;  ///< of a line
  A* totals;           ///< [lines, tiles], or nullptr
  const A* before;     ///< [lines, tiles]: what those up to each come to; or nullptr

  DTRUN_BOTH void load_tile(const Team<Shared>& team, std::int64_t line, std::int64_t first) const {
    team.each_thread([&](int thread, Shared& shared) {
      const std::int64_t start = lines.layout.others.offsets(line).of[1];
      for (std::int64_t k = thread; k < kScanTile; k += kThreads) {
        const A neutral = static_cast<A>(lines.join == ScanJoin::add ? 0 : 1);
        shared.values[k] =
            first + k < lines.layout.length ? lines.load<A>(start, first + k) : neutral;
      }
    });
  }

  /// Each thread's own elements, then the sums of the threads. @return which of the two sums
  DTRUN_BOTH int scan_threads(const Team<Shared>& team) const {
    team.each_thread([&](int thread, Shared& shared) {
      A* const own = shared.values + thread * kScanEach;
      for (int k = 1; k < kScanEach; ++k) own[k] = join_scanned(lines.join, own[k - 1], own[k]);
      shared.sums[0][thread] = own[kScanEach - 1];
    });
    int current = 0;
    for (int distance = 1; distance < static_cast<int>(kThreads); distance *= 2) {
      team.each_thread([&](int thread, Shared& shared) {
        const A* const from = shared.sums[current];
        shared.sums[1 - current][thread] =
            thread >= distance ? join_scanned(lines.join, from[thread - distance], from[thread])
                               : from[thread];
      });
      current = 1 - current;
    }
    return current;
  }

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    const std::int64_t line = divide(item, tiles).quotient;
    const std::int64_t tile = item - line * tiles;
    const std::int64_t first = tile * kScanTile;
    load_tile(team, line, first);
    const int current = scan_threads(team);
    if (totals != nullptr) {
      team.each_thread([&](int thread, Shared& shared) {
        if (thread == 0) totals[item] = shared.sums[current][kThreads - 1];
      });
      return;
    }
    team.each_thread([&](int thread, Shared& shared) {
      A* const own = shared.values + thread * kScanEach;
      for (int k = 0; k < kScanEach; ++k) {
        if (thread > 0) own[k] = join_scanned(lines.join, shared.sums[current][thread - 1], own[k]);
        if (tile > 0) own[k] = join_scanned(lines.join, before[item - 1], own[k]);
      }
    });
    team.each_thread([&](int thread, Shared& shared) {
      const std::int64_t start = lines.layout.others.offsets(line).of[0];
      for (std::int64_t k = thread; k < kScanTile && first + k < lines.layout.length;
           k += kThreads) {
        lines.store(start, first + k, shared.values[k]);
      }
    });
  }
};

template <typename A>
void scan_numbers(const ScanLines& lines, DType numbers, Device device) {
  // By the shape alone: the same bits for every layout.
  constexpr std::int64_t kManyLines = 4096;
  constexpr std::int64_t kShortLine = 64;
  const Stream stream = current_stream(device.index);
  const std::int64_t count = lines.layout.lines;
  if (count >= kManyLines || lines.layout.length <= kShortLine) {
    return for_each(count, ScanLine<A>{lines}, stream);
  }
  const std::int64_t tiles = (lines.layout.length + kScanTile - 1) / kScanTile;
  if (tiles == 1) {
    return for_each_team(count, ScanTile<A>{lines, tiles, nullptr, nullptr}, stream);
  }
  const LocalTensor totals = empty({count, tiles}, {numbers, device});
  for_each_team(count * tiles, ScanTile<A>{lines, tiles, totals.data_as<A>(), nullptr}, stream);
  const LocalTensor before = empty({count, tiles}, {numbers, device});
  scan_elements(before, totals, 1, lines.join, ScanFrom::first);
  for_each_team(count * tiles, ScanTile<A>{lines, tiles, nullptr, before.data_as<const A>()},
                stream);
}

}  // namespace

void scan_elements(const LocalTensor& target, const LocalTensor& source, int dim, ScanJoin join,
                   ScanFrom from) {
  if (target.numel() == 0) return;
  const ScanLines lines{make_lines<2>(source.shape(), dim, {&target.strides(), &source.strides()}),
                        target.data(),
                        source.data(),
                        target.dtype(),
                        source.dtype(),
                        join,
                        from};
  if (is_floating_point(source.dtype())) {
    scan_numbers<double>(lines, DType::f64, source.device());
  } else {
    scan_numbers<std::int64_t>(lines, DType::i64, source.device());
  }
}

}  // namespace dtrun::tensors::cuda
