#include "loops/map_loop.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "copy_kernel.h"
#include "dtrun/base/check.h"
#include "loops/scratch.h"

namespace dtrun::tensors {
namespace {

constexpr std::int64_t kBlock = 512;

struct Staging {
  alignas(64) std::byte bytes[kBlock * 8];
};

/// How one operand gets to the inner loop, or from there into memory.
struct Port {
  std::int64_t stored_size;
  std::int64_t computed_size;
  bool same_dtype;
  RowKernel convert = nullptr;  ///< between memory and `through`
  RowKernel round = nullptr;    ///< from there to `computed`; inputs only

  static Port of_input(const MapOperand& operand) {
    Port port = of(operand);
    if (operand.through != operand.computed && operand.through != operand.stored) {
      port.same_dtype = false;
      port.convert = copy_kernel(operand.through, operand.stored);
      port.round = copy_kernel(operand.computed, operand.through);
      port.through_size = static_cast<std::int64_t>(item_size(operand.through));
    } else {
      port.convert = copy_kernel(operand.computed, operand.stored);
    }
    return port;
  }
  static Port of_output(const MapOperand& operand) {
    Port port = of(operand);
    port.convert = copy_kernel(operand.stored, operand.computed);
    return port;
  }

  void load(std::byte* target, char* source, std::int64_t step, std::int64_t count) const {
    if (round == nullptr) return run(convert, target, computed_size, source, step, count);
    Staging rounded;
    run(convert, rounded.bytes, through_size, source, step, count);
    run(round, target, computed_size, rounded.bytes, through_size, count);
  }
  void store(char* target, std::int64_t step, std::byte* source, std::int64_t count) const {
    run(convert, target, step, source, computed_size, count);
  }

 private:
  std::int64_t through_size = 0;

  static Port of(const MapOperand& operand) {
    Port port;
    port.stored_size = static_cast<std::int64_t>(item_size(operand.stored));
    port.computed_size = static_cast<std::int64_t>(item_size(operand.computed));
    port.same_dtype = operand.stored == operand.computed;
    return port;
  }
  static void run(RowKernel kernel, void* target, std::int64_t target_step, void* source,
                  std::int64_t source_step, std::int64_t count) {
    char* const pointers[] = {static_cast<char*>(target), static_cast<char*>(source)};
    const std::int64_t steps[] = {target_step, source_step};
    kernel(pointers, steps, count);
  }
};

/// A few elements: a call of memcpy takes longer.
template <typename Word>
void copy_words(void* target, const void* source, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<Word*>(target) + i, static_cast<const Word*>(source) + i, sizeof(Word));
  }
}
void copy_elements(void* target, const void* source, std::int64_t count, std::int64_t size) {
  if (size == 4) return copy_words<std::uint32_t>(target, source, count);
  if (size == 8) return copy_words<std::uint64_t>(target, source, count);
  std::memcpy(target, source, static_cast<std::size_t>(count * size));
}

/// Fills all lanes.
template <typename Word>
void repeat_word(std::byte* lanes, const std::byte* element) {
  Word word;
  std::memcpy(&word, element, sizeof word);
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    std::memcpy(lanes + lane * static_cast<std::int64_t>(sizeof word), &word, sizeof word);
}
void repeat_element(std::byte* lanes, const std::byte* element, std::int64_t size) {
  if (size == 4) return repeat_word<std::uint32_t>(lanes, element);
  if (size == 8) return repeat_word<std::uint64_t>(lanes, element);
  if (size == 2) return repeat_word<std::uint16_t>(lanes, element);
  repeat_word<std::uint8_t>(lanes, element);
}

/// The ports of one call; 0 is the output.
struct Ports {
  int count;
  std::array<Port, kMostOperands> of;
  MapRun run;
  const MapNumbers& numbers;
};

/// One row of the loop, however long.
class MapRow {
 public:
  MapRow(const Ports& ports, const LoopPointers& pointers, const LoopSteps& steps)
      : ports_(ports), pointers_(pointers), steps_(steps) {}

  void run(std::int64_t count) {
    const std::int64_t body = count - count % kLanes;
    bool dense = true;
    for (int k = 0; k < ports_.count; ++k) {
      const auto operand = static_cast<std::size_t>(k);
      const Port& port = ports_.of[operand];
      direct_[operand] = port.same_dtype && steps_[operand] == port.stored_size;
      repeated_[operand] = k > 0 && steps_[operand] == 0;
      dense = dense && direct_[operand];
      if (!repeated_[operand]) continue;
      const std::int64_t filled = std::min(kBlock, (count + kLanes - 1) / kLanes * kLanes);
      port.load(staging_[operand].bytes, pointers_[operand], 0, filled);
      inputs_[operand - 1] = staging_[operand].bytes;
    }
    const std::int64_t block = dense ? body : kBlock;
    for (std::int64_t i = 0; i < body; i += block) run_block(i, std::min(block, body - i));
    if (body < count) run_tail(body, count - body);
  }

 private:
  char* at(std::size_t operand, std::int64_t i) const {
    return pointers_[operand] + i * steps_[operand];
  }

  void run_block(std::int64_t i, std::int64_t count) {
    for (std::size_t k = 1; k < static_cast<std::size_t>(ports_.count); ++k) {
      if (repeated_[k]) continue;
      if (direct_[k]) {
        inputs_[k - 1] = at(k, i);
      } else {
        ports_.of[k].load(staging_[k].bytes, at(k, i), steps_[k], count);
        inputs_[k - 1] = staging_[k].bytes;
      }
    }
    if (direct_[0]) return ports_.run(at(0, i), inputs_.data(), count, ports_.numbers);
    ports_.run(staging_[0].bytes, inputs_.data(), count, ports_.numbers);
    ports_.of[0].store(at(0, i), steps_[0], staging_[0].bytes, count);
  }

  /// Fewer than kLanes. The lanes beyond repeat the last element, which is as good as any.
  void run_tail(std::int64_t i, std::int64_t count) {
    for (std::size_t k = 1; k < static_cast<std::size_t>(ports_.count); ++k) {
      if (repeated_[k]) continue;
      std::byte* const lanes = staging_[k].bytes;
      const Port& port = ports_.of[k];
      if (direct_[k]) {
        const auto* const last = reinterpret_cast<const std::byte*>(at(k, i + count - 1));
        repeat_element(lanes, last, port.computed_size);
        copy_elements(lanes, at(k, i), count, port.computed_size);
      } else {
        // In the form that is computed in, the last element is first in the lanes.
        port.load(lanes, at(k, i + count - 1), steps_[k], 1);
        repeat_element(lanes, lanes, port.computed_size);
        port.load(lanes, at(k, i), steps_[k], count);
      }
      inputs_[k - 1] = lanes;
    }
    ports_.run(staging_[0].bytes, inputs_.data(), kLanes, ports_.numbers);
    if (direct_[0]) {
      copy_elements(at(0, i), staging_[0].bytes, count, ports_.of[0].stored_size);
    } else {
      ports_.of[0].store(at(0, i), steps_[0], staging_[0].bytes, count);
    }
  }

  const Ports& ports_;
  const LoopPointers& pointers_;
  const LoopSteps& steps_;
  std::array<bool, kMostOperands> direct_;
  std::array<bool, kMostOperands> repeated_;
  std::array<const void*, kMostOperands - 1> inputs_;
  std::array<Staging, kMostOperands> staging_;
};

bool is_dense(const MapOperand& operand) {
  std::int64_t step = 1;
  for (std::size_t d = operand.shape->size(); d-- > 0;) {
    if ((*operand.shape)[d] == 1) continue;
    if ((*operand.strides)[d] != step) return false;
    step *= (*operand.shape)[d];
  }
  return true;
}

bool is_single(const MapOperand& operand) {
  return operand.shape == nullptr || std::all_of(operand.shape->begin(), operand.shape->end(),
                                                 [](auto size) { return size == 1; });
}

/// Bytes from one element to the next along dim d of the output, or 0.
std::int64_t step_of(const MapOperand& operand, std::size_t d, std::size_t rank,
                     std::int64_t item_size) {
  if (operand.shape == nullptr) return 0;
  const std::size_t missing = rank - operand.shape->size();
  if (d < missing || (*operand.shape)[d - missing] == 1) return 0;
  return (*operand.strides)[d - missing] * item_size;
}

/// The elements behind the last full group of lanes.
__attribute__((noinline)) void map_dense_tail(const DenseMap& map, std::int64_t first,
                                              std::int64_t count, MapRun run,
                                              const MapNumbers& numbers) {
  struct Lanes {
    alignas(64) std::byte bytes[kLanes * 8];
  };
  std::array<Lanes, kMostOperands> lanes;
  std::array<const void*, kMostOperands - 1> inputs;
  for (std::size_t k = 0; k < static_cast<std::size_t>(map.input_count); ++k) {
    std::byte* const own = lanes[k].bytes;
    const auto* const source =
        static_cast<const std::byte*>(map.inputs[k]) + first * map.input_size;
    repeat_element(own, source + (count - 1) * map.input_size, map.input_size);
    copy_elements(own, source, count, map.input_size);
    inputs[k] = own;
  }
  std::byte* const result = lanes[kMostOperands - 1].bytes;
  run(result, inputs.data(), kLanes, numbers);
  copy_elements(static_cast<std::byte*>(map.output) + first * map.output_size, result, count,
                map.output_size);
}

/// Whether the inner loop takes all operands where they lie.
bool runs_directly(const Ports& ports, const LoopDim& inner) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(ports.count); ++k) {
    if (!ports.of[k].same_dtype || inner.steps[k] != ports.of[k].stored_size) return false;
  }
  return inner.size % kLanes == 0;
}

/// Rows of whole groups of lanes, without MapRow's questions for each.
void map_direct_rows(const Ports& ports, const StridedLoop& loop, const LoopPointers& first) {
  using Inputs = std::array<const void*, kMostOperands - 1>;
  if (loop.dims() == 2 && !loop.is_tiled()) {
    const LoopDim &row = loop.inner(), &rows = loop.dim(1);
    const std::int64_t grain = std::max<std::int64_t>(1, kLoopGrain / row.size);
    return parallel_for(rows.size, grain, [&](std::int64_t begin, std::int64_t end) {
      Inputs in;
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::size_t k = 0; k < in.size(); ++k) in[k] = first[k + 1] + i * rows.steps[k + 1];
        ports.run(first[0] + i * rows.steps[0], in.data(), row.size, ports.numbers);
      }
    });
  }
  loop.run([&](const LoopPointers& pointers, const LoopSteps&, std::int64_t count) {
    Inputs in;
    for (std::size_t k = 0; k < in.size(); ++k) in[k] = pointers[k + 1];
    ports.run(pointers[0], in.data(), count, ports.numbers);
  });
}

/// Whether all operands are runs, but for some that have one short row for all rows.
bool repeats_a_short_row(const Ports& ports, const StridedLoop& loop) {
  // Longer rows are worth a call each: rows of 512 of 1 M f32 took 92 us so, and 98 as short ones.
  constexpr std::int64_t kShort = 256;
  const LoopDim& row = loop.inner();
  if (loop.dims() != 2 || row.size > kShort) return false;
  bool repeats = false;
  for (std::size_t k = 0; k < static_cast<std::size_t>(ports.count); ++k) {
    const std::int64_t size = ports.of[k].stored_size, step = loop.dim(1).steps[k];
    const bool is_repeated = k > 0 && step == 0;
    if (row.steps[k] != size || (!is_repeated && step != row.size * size)) return false;
    repeats = repeats || is_repeated;
  }
  return repeats;
}

/// Up to the next place that elements of any dtype may begin at.
std::int64_t rounded_up(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/// Such rows, many at once: the one that all share is written down as often.
void map_short_rows(const Ports& ports, const StridedLoop& loop, const LoopPointers& first) {
  // Of 4 bytes: two inputs and the output fit in a first cache of 32 KiB.
  constexpr std::int64_t kElements = 2048;
  const std::int64_t row = loop.inner().size, rows = loop.dim(1).size;
  std::int64_t block = kElements / row;
  if (row % kLanes != 0) block = std::max(kLanes, block - block % kLanes);
  block = std::min(block, rows);
  LoopPointers start = first;
  LoopSteps steps{}, block_steps{};
  Scratch scratch((kMostOperands - 1) *
                  rounded_up(block * row * static_cast<std::int64_t>(sizeof(double))));
  auto* place = reinterpret_cast<char*>(scratch.data());
  for (std::size_t k = 0; k < static_cast<std::size_t>(ports.count); ++k) {
    steps[k] = ports.of[k].stored_size;
    const std::int64_t bytes = row * steps[k];
    block_steps[k] = block * loop.dim(1).steps[k];
    if (loop.dim(1).steps[k] != 0) continue;
    start[k] = place;
    for (std::int64_t i = 0; i < block; ++i)
      std::memcpy(place + i * bytes, first[k], static_cast<std::size_t>(bytes));
    place += rounded_up(block * bytes);
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kLoopGrain / (block * row));
  parallel_for((rows + block - 1) / block, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      LoopPointers pointers = start;
      for (std::size_t k = 0; k < kMostOperands; ++k) pointers[k] += i * block_steps[k];
      MapRow(ports, pointers, steps).run(std::min(block, rows - i * block) * row);
    }
  });
}

}  // namespace

void map_dense(const DenseMap& map, std::int64_t count, MapRun run, const MapNumbers& numbers) {
  parallel_for(count, kLoopGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t body = (end - begin) - (end - begin) % kLanes;
    std::array<const void*, kMostOperands - 1> inputs;
    for (std::size_t k = 0; k < static_cast<std::size_t>(map.input_count); ++k) {
      inputs[k] = static_cast<const std::byte*>(map.inputs[k]) + begin * map.input_size;
    }
    void* const output = static_cast<std::byte*>(map.output) + begin * map.output_size;
    if (body != 0) run(output, inputs.data(), body, numbers);
    if (begin + body < end) map_dense_tail(map, begin + body, end - begin - body, run, numbers);
  });
}

void map_elements(const Shape& shape, const MapOperand& output, std::span<const MapOperand> inputs,
                  MapRun run, const MapNumbers& numbers) {
  DT_CHECK(run != nullptr && inputs.size() < kMostOperands);
  const std::int64_t total = numel(shape);
  if (total == 0) return;
  Ports ports{static_cast<int>(inputs.size()) + 1, {}, run, numbers};
  const auto operand = [&](std::size_t k) -> const MapOperand& {
    return k == 0 ? output : inputs[k - 1];
  };
  bool flat = true;
  LoopPointers first{};
  LoopSteps steps{};
  for (std::size_t k = 0; k <= inputs.size(); ++k) {
    const MapOperand& each = operand(k);
    ports.of[k] = k == 0 ? Port::of_output(each) : Port::of_input(each);
    first[k] = each.data;
    const bool repeated = k > 0 && is_single(each);
    steps[k] = repeated ? 0 : ports.of[k].stored_size;
    flat = flat && (repeated || (*each.shape == shape && is_dense(each)));
  }
  const auto row = [&ports](const LoopPointers& pointers, const LoopSteps& row_steps,
                            std::int64_t count) { MapRow(ports, pointers, row_steps).run(count); };
  if (flat) {
    return parallel_for(total, kLoopGrain, [&](std::int64_t begin, std::int64_t end) {
      LoopPointers start = first;
      for (std::size_t k = 0; k <= inputs.size(); ++k) start[k] += begin * steps[k];
      row(start, steps, end - begin);
    });
  }
  StridedLoop loop;
  for (std::size_t k = 0; k <= inputs.size(); ++k) loop.set_operand(static_cast<int>(k), first[k]);
  for (std::size_t d = shape.size(); d-- > 0;) {
    LoopSteps dim_steps{};
    for (std::size_t k = 0; k <= inputs.size(); ++k) {
      dim_steps[k] = step_of(operand(k), d, shape.size(), ports.of[k].stored_size);
    }
    loop.add_dim(shape[d], dim_steps);
  }
  loop.merge();
  if (repeats_a_short_row(ports, loop)) return map_short_rows(ports, loop, first);
  if (runs_directly(ports, loop.inner())) return map_direct_rows(ports, loop, first);
  loop.run(row);
}

}  // namespace dtrun::tensors
