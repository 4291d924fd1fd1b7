// Picks and places: a thread for each element of the result, or for each that has a place of its
// own. What elements are matters only where they are added.
#include "cuda/index.h"

#include <limits>

#include "arithmetic.h"
#include "cuda/any_element.h"
#include "cuda/for_each.h"
#include "cuda/line_layout.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors::cuda {
namespace {

/// Whichever thread comes first.
DTRUN_BOTH void keep_least(std::uint64_t* least, std::uint64_t number) {
#ifdef __CUDA_ARCH__
  atomicMin(reinterpret_cast<unsigned long long*>(least), static_cast<unsigned long long>(number));
#else
  if (number < *least) *least = number;
#endif
}

struct FindOutside {
  StridedLayout<1> layout;
  const std::int64_t* positions;
  std::int64_t first, end, ignored;
  bool ignores;
  std::uint64_t* least;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const std::int64_t position = positions[layout.offsets(i).of[0]];
    if (position >= first && position < end) return;
    if (ignores && position == ignored) return;
    keep_least(least, static_cast<std::uint64_t>(i));
  }
};

struct CountFromStart {
  std::int64_t* positions;
  std::int64_t size;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    if (positions[i] < 0) positions[i] += size;
  }
};

struct PickSlices {
  std::size_t item_bytes;
  void* target;
  const void* source;
  const std::int64_t* positions;
  std::int64_t count, size, after;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const Division slice = divide(i, after);
    const Division outer = divide(slice.quotient, count);
    const std::int64_t from = outer.quotient * size + positions[outer.remainder];
    move_element(item_bytes, target, i, source, from * after + slice.remainder);
  }
};

/// Operands: the result, the index, the source but along its dim.
struct GatherElements {
  StridedLayout<3> layout;
  std::size_t item_bytes;
  void* target;
  const std::int64_t* index;
  const void* source;
  std::int64_t source_step;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    move_element(item_bytes, target, offsets.of[0], source,
                 offsets.of[2] + index[offsets.of[1]] * source_step);
  }
};

/// Index: an element of the sorted index. It acts where a run of one position ends (last) or begins
/// (all others). Operands: what is sorted; target and source but along the dim; the place along it.
struct PlaceRuns {
  StridedLayout<4> layout;
  Placing placing;
  DType dtype;
  std::size_t item_bytes;
  void* target;
  const void* source;
  const std::int64_t* keys;
  const std::int64_t* order;  ///< where a key stood before
  std::int64_t sorted_step, target_step, source_step, length;
  double factor;
  std::int64_t integer_factor;

  template <typename T, typename F>
  DTRUN_BOTH void fold_run(std::int64_t sorted, std::int64_t to, std::int64_t from,
                           std::int64_t k) const {
    using C = ComputeType<T>;
    const C by =
        std::is_floating_point_v<C> ? static_cast<C>(factor) : static_cast<C>(integer_factor);
    const std::int64_t position = keys[sorted];
    T* const place = static_cast<T*>(target) + to;
    T all = *place;
    for (; k < length && keys[sorted] == position; ++k, sorted += sorted_step) {
      const T part = static_cast<const T*>(source)[from + order[sorted] * source_step];
      const C scaled = Multiply::apply(by, Element<T>::load(part));
      all = Element<T>::store(F::apply(Element<T>::load(all), scaled));
    }
    *place = all;
  }

  template <typename F>
  DTRUN_BOTH void fold(std::int64_t sorted, std::int64_t to, std::int64_t from,
                       std::int64_t k) const {
    dispatch(dtype,
             [&](auto tag) { fold_run<typename decltype(tag)::Type, F>(sorted, to, from, k); });
  }

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    const std::int64_t sorted = offsets.of[0];
    const std::int64_t k = offsets.of[3];
    const std::int64_t to = offsets.of[1] + keys[sorted] * target_step;
    if (placing == Placing::last) {
      if (k + 1 < length && keys[sorted + sorted_step] == keys[sorted]) return;
      move_element(item_bytes, target, to, source, offsets.of[2] + order[sorted] * source_step);
      return;
    }
    if (k > 0 && keys[sorted - sorted_step] == keys[sorted]) return;
    if (placing == Placing::product) return fold<Multiply>(sorted, to, offsets.of[2], k);
    if (placing == Placing::greatest) return fold<Max>(sorted, to, offsets.of[2], k);
    if (placing == Placing::least) return fold<Min>(sorted, to, offsets.of[2], k);
    fold<Add>(sorted, to, offsets.of[2], k);
  }
};

struct PlaceTrue {
  std::int64_t* numbers;
  const std::uint8_t* mask;
  const std::int64_t* counts;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    if (mask[i] != 0) numbers[counts[i] - 1] = i;
  }
};

struct PickColumns {
  std::size_t item_bytes;
  void* target;
  const void* source;
  const std::int64_t* columns;
  std::int64_t row_step, column_step, width, ignored, first;

  DTRUN_BOTH void operator()(std::int64_t row) const {
    const std::int64_t column = columns[row] - first;
    if (columns[row] == ignored || column < 0 || column >= width) return;
    move_element(item_bytes, target, row, source, row * row_step + column * column_step);
  }
};

struct PlaceColumns {
  std::size_t item_bytes;
  void* target;
  const void* source;
  const std::int64_t* columns;
  std::int64_t source_step, width, ignored;

  DTRUN_BOTH void operator()(std::int64_t row) const {
    if (columns[row] == ignored) return;
    move_element(item_bytes, target, row * width + columns[row], source, row * source_step);
  }
};

struct MoveFlipped {
  StridedLayout<2> layout;
  std::size_t item_bytes;
  void* target;
  const void* source;
  std::int64_t first;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    move_element(item_bytes, target, offsets.of[0], source, first + offsets.of[1]);
  }
};

Stream stream_of(const LocalTensor& tensor) {
  return current_stream(tensor.device().index);
}

Strides without_dim(Strides strides, int dim) {
  strides[static_cast<std::size_t>(dim)] = 0;
  return strides;
}

/// A dim that repeats what it has needs to be sorted once.
LocalTensor without_repeats(const LocalTensor& index, int dim) {
  LocalTensor once = index;
  for (int d = 0; d < index.dim(); ++d) {
    if (d != dim && index.strides()[static_cast<std::size_t>(d)] == 0) once = once.narrow(d, 0, 1);
  }
  return once;
}

struct SortedIndex {
  LocalTensor keys, order;
};
SortedIndex sort_index(const LocalTensor& index, int dim) {
  const LocalTensor once = without_repeats(index, dim);
  SortedIndex sorted;
  if (once.size(dim) == 1) {
    sorted.keys = once.contiguous();
    sorted.order = zeros(once.shape(), {DType::i64, index.device()});
  } else {
    sorted.keys = empty(once.shape(), {DType::i64, index.device()});
    sorted.order = empty(once.shape(), {DType::i64, index.device()});
    sort_elements(sorted.keys, sorted.order, once, dim, SortOrder::ascending);
  }
  return {sorted.keys.expand(index.shape()), sorted.order.expand(index.shape())};
}

}  // namespace

std::int64_t first_outside(const LocalTensor& positions, const PositionRange& range) {
  if (positions.numel() == 0) return -1;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const LocalTensor least = full({1}, kNone, {DType::i64, positions.device()});
  for_each(positions.numel(),
           FindOutside{make_layout<1>(positions.shape(), {&positions.strides()}),
                       positions.data_as<const std::int64_t>(), range.first, range.end,
                       range.ignored.value_or(0), range.ignored.has_value(),
                       least.data_as<std::uint64_t>()},
           stream_of(positions));
  const std::int64_t found = least.to_vector_i64()[0];
  return found == kNone ? -1 : found;
}

void count_from_start(const LocalTensor& positions, std::int64_t size) {
  for_each(positions.numel(), CountFromStart{positions.data_as<std::int64_t>(), size},
           stream_of(positions));
}

void pick_slices(const LocalTensor& target, const LocalTensor& source, int dim,
                 const LocalTensor& positions) {
  std::int64_t after = 1;
  for (int d = dim + 1; d < source.dim(); ++d) after *= source.size(d);
  for_each(target.numel(),
           PickSlices{item_size(source.dtype()), target.data(), source.data(),
                      positions.data_as<const std::int64_t>(), positions.numel(), source.size(dim),
                      after},
           stream_of(target));
}

void gather_elements(const LocalTensor& target, const LocalTensor& source, int dim,
                     const LocalTensor& index) {
  const Strides beside = without_dim(source.strides(), dim);
  for_each(
      index.numel(),
      GatherElements{make_layout<3>(index.shape(), {&target.strides(), &index.strides(), &beside}),
                     item_size(source.dtype()), target.data(), index.data_as<const std::int64_t>(),
                     source.data(), source.strides()[static_cast<std::size_t>(dim)]},
      stream_of(target));
}

void place_elements(Placing placing, const LocalTensor& target, int dim, const LocalTensor& index,
                    const LocalTensor& source, Scalar factor) {
  if (index.numel() == 0) return;
  const auto d = static_cast<std::size_t>(dim);
  const SortedIndex sorted = sort_index(index, dim);
  const Strides to = without_dim(target.strides(), dim);
  const Strides from = without_dim(source.strides(), dim);
  Strides along(index.shape().size(), 0);
  along[d] = 1;
  const double number =
      factor.is_floating() ? factor.to_double() : static_cast<double>(factor.to_i64());
  for_each(index.numel(),
           PlaceRuns{make_layout<4>(index.shape(), {&sorted.keys.strides(), &to, &from, &along}),
                     placing, target.dtype(), item_size(target.dtype()), target.data(),
                     source.data(), sorted.keys.data_as<const std::int64_t>(),
                     sorted.order.data_as<const std::int64_t>(), sorted.keys.strides()[d],
                     target.strides()[d], source.strides()[d], index.shape()[d], number,
                     factor.is_floating() ? static_cast<std::int64_t>(number) : factor.to_i64()},
           stream_of(target));
}

void place_true(const LocalTensor& numbers, const LocalTensor& mask, const LocalTensor& counts) {
  for_each(mask.numel(),
           PlaceTrue{numbers.data_as<std::int64_t>(), mask.data_as<const std::uint8_t>(),
                     counts.data_as<const std::int64_t>()},
           stream_of(mask));
}

void pick_columns(const LocalTensor& target, const LocalTensor& source, const LocalTensor& columns,
                  std::int64_t ignored, std::int64_t first_column) {
  for_each(target.numel(),
           PickColumns{item_size(source.dtype()), target.data(), source.data(),
                       columns.data_as<const std::int64_t>(), source.strides()[0],
                       source.strides()[1], source.size(1), ignored, first_column},
           stream_of(target));
}

void place_columns(const LocalTensor& target, const LocalTensor& source, const LocalTensor& columns,
                   std::int64_t ignored) {
  for_each(source.numel(),
           PlaceColumns{item_size(source.dtype()), target.data(), source.data(),
                        columns.data_as<const std::int64_t>(), source.strides()[0], target.size(1),
                        ignored},
           stream_of(target));
}

void flip_elements(const LocalTensor& target, const LocalTensor& source,
                   const std::vector<bool>& flipped) {
  Strides strides = source.strides();
  std::int64_t first = 0;
  for (std::size_t d = 0; d < flipped.size(); ++d) {
    if (!flipped[d]) continue;
    first += (source.shape()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  for_each(target.numel(),
           MoveFlipped{make_layout<2>(source.shape(), {&target.strides(), &strides}),
                       item_size(source.dtype()), target.data(), source.data(), first},
           stream_of(target));
}

}  // namespace dtrun::tensors::cuda
