// Gather and scatter: lines along the indexed dim are independent of each other.
#include "dtrun/tensor/ops/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "arithmetic.h"
#include "cuda/index.h"
#include "cuda/reductions.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/place_error.h"
#include "dtrun/tensor/reduce_kernel.h"
#include "dtrun/tensor/threads.h"
#include "element.h"
#include "loops/line.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"
#include "multiversion.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::int64_t kElementsPerTask = 16384;

void require_positions(std::string_view op, const LocalTensor& index) {
  if (index.dtype() == DType::i64) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} with {} positions", op, dtype_name(index.dtype())),
              "positions are int64", "to(DType::i64)");
}

void require_source(std::string_view op, const LocalTensor& a, const LocalTensor& source,
                    const Shape& shape) {
  require_one_device(op, a, source);
  if (source.dtype() == a.dtype() && source.shape() == shape) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} of {} {} into {} {}", op, dtype_name(source.dtype()),
                          shape_to_string(source.shape()), dtype_name(a.dtype()),
                          shape_to_string(a.shape())),
              fmt::format("it takes {} {}", dtype_name(a.dtype()), shape_to_string(shape)),
              "expand() the source to that shape, or to() that dtype");
}

/// The part of the source that the index covers; the source may be larger.
LocalTensor beside_index(std::string_view op, const LocalTensor& a, const LocalTensor& source,
                         const Shape& index) {
  LocalTensor part = source;
  const bool fits = source.shape().size() == index.size();
  for (int d = 0; fits && d < source.dim(); ++d) {
    const std::int64_t size = index[static_cast<std::size_t>(d)];
    if (source.size(d) > size) part = part.narrow(d, 0, size);
  }
  require_source(op, a, part, index);
  return part;
}

/// A 0-dim tensor as a line of one element.
LocalTensor with_a_dim(const LocalTensor& a) {
  return a.dim() == 0 ? a.view({1}) : a;
}

int line_dim(int dim, const LocalTensor& a) {
  return normalize_dim(dim, static_cast<std::size_t>(std::max(1, a.dim())));
}

/// A tensor around one dim: [before, size, after], contiguous.
struct Slabs {
  std::int64_t before = 1, size = 1, after = 1;

  Slabs(const Shape& shape, int dim) {
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      const std::int64_t count = shape[static_cast<std::size_t>(d)];
      (d < dim ? before : d == dim ? size : after) *= count;
    }
  }
};

Shape with_size(Shape shape, int dim, std::int64_t size) {
  shape[static_cast<std::size_t>(dim)] = size;
  return shape;
}

void require_list(std::string_view op, const LocalTensor& index) {
  if (index.dim() <= 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} with positions of shape {}", op, shape_to_string(index.shape())),
              "they are a list", "view({-1})");
}

/// Slices of one slab, and where they go. Passed by value: the copied bytes might else be the
/// numbers here, as far as the compiler knows.
struct SlabPicks {
  char* target;
  const char* source;
  const std::int64_t* positions;  ///< in slices
  std::int64_t count;
  std::int64_t known;  ///< how many positions there are from the first one on
};

/// Slices that are one word each, at any address: while the processor waits for one, it asks for
/// those to come.
template <typename Word>
void pick_words(SlabPicks picks) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Word));
  for (std::int64_t i = 0; i < picks.count; ++i) {
    std::memcpy(picks.target + i * kBytes, picks.source + picks.positions[i] * kBytes,
                sizeof(Word));
  }
}

/// A line of memory.
constexpr std::int64_t kLine = 64;

/// Slices of up to 32 lines. A call for a few lines takes longer than they do, and the processor
/// foresees the lines of a slice, but not where the next one begins.
/// @param bytes of a slice; a multiple of kLine, unless there is a rest
template <bool kHasRest>
DTRUN_MULTIVERSION void pick_lines(SlabPicks picks, std::int64_t bytes) {
  const std::int64_t slices_ahead = bytes > 8 * kLine ? 1 : 8;
  const std::int64_t rest = bytes % kLine, whole = bytes - rest;
  for (std::int64_t i = 0; i < picks.count; ++i, picks.target += bytes) {
    const char* const slice = picks.source + picks.positions[i] * bytes;
    const std::int64_t ahead = std::min(i + slices_ahead, picks.known - 1);
    const char* const next = picks.source + picks.positions[ahead] * bytes;
    for (std::int64_t done = 0; done < whole; done += kLine) {
      __builtin_prefetch(next + done);
      std::memcpy(picks.target + done, slice + done, kLine);
    }
    if constexpr (kHasRest) {
      // It may lie in two lines.
      __builtin_prefetch(next + whole);
      __builtin_prefetch(next + bytes - 1);
      std::memcpy(picks.target + whole, slice + whole, static_cast<std::size_t>(rest));
    }
  }
}

void pick_large(SlabPicks picks, std::int64_t bytes) {
  for (std::int64_t i = 0; i < picks.count; ++i) {
    std::memcpy(picks.target + i * bytes, picks.source + picks.positions[i] * bytes,
                static_cast<std::size_t>(bytes));
  }
}

/// @param bytes of a slice
void pick_slices(SlabPicks picks, std::int64_t bytes) {
  if (bytes == 1) return pick_words<std::uint8_t>(picks);
  if (bytes == 2) return pick_words<std::uint16_t>(picks);
  if (bytes == 4) return pick_words<std::uint32_t>(picks);
  if (bytes == 8) return pick_words<std::uint64_t>(picks);
  if (bytes > 32 * kLine) return pick_large(picks, bytes);
  bytes % kLine == 0 ? pick_lines<false>(picks, bytes) : pick_lines<true>(picks, bytes);
}

// A call for a few takes longer than they do.
constexpr std::int64_t kFewHalves = 8;
template <typename T>
constexpr DType kHalf = std::is_same_v<T, BFloat16> ? DType::bf16 : DType::f16;
template <typename T>
void load_halves(float* target, const T* source, std::int64_t count) {
  if (count >= kFewHalves) return widen(kHalf<T>, target, source, count);
  for (std::int64_t i = 0; i < count; ++i) target[i] = Element<T>::load(source[i]);
}
template <typename T>
void store_halves(T* target, const float* source, std::int64_t count) {
  if (count >= kFewHalves) return narrow(kHalf<T>, target, source, count);
  for (std::int64_t i = 0; i < count; ++i) target[i] = Element<T>::store(source[i]);
}

/// Each task owns some slices and applies all positions to them, so that no two tasks write to one
/// element.
template <typename T, typename C = ComputeType<T>>
void add_slices(const LocalTensor& out, int dim, const LocalTensor& index,
                const LocalTensor& source, C alpha) {
  const Slabs to(out.shape(), dim);
  const std::int64_t count = index.numel();
  const std::int64_t* const positions = index.data_as<const std::int64_t>();
  const T* const from = source.data_as<const T>();
  T* const target = out.data_as<T>();
  const ShapesOnly shapes_only = shapes_only_for(out.dtype());
  const std::int64_t slices = to.before * to.size;
  const std::int64_t grain = std::max<std::int64_t>(1, slices / num_threads());
  parallel_for(slices, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin / to.size; o < to.before && o * to.size < end; ++o) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t slice = o * to.size + positions[i];
        if (slice < begin || slice >= end) continue;
        T* const sum = target + slice * to.after;
        const T* const part = from + (o * count + i) * to.after;
        for (std::int64_t j = 0; j < to.after; ++j) {
          const C addend = Multiply::apply(alpha, Element<T>::load(part[j]));
          sum[j] = Element<T>::store(Add::apply(Element<T>::load(sum[j]), addend));
        }
      }
    }
  });
}

/// Whether a list of so many positions is so short that a walk over all that they may point at
/// takes longer than sorting them.
bool is_sparse(std::int64_t count, std::int64_t size) {
  return count < size / 16;
}

/// The places of a list by what they point at: those of pointed[k], which are in rising order, are
/// of[starts[k]] to of[starts[k + 1]], in their order. Few positions of many take room for
/// themselves only.
struct PlacesOfPositions {
  std::vector<std::int64_t> pointed, starts, of;

  PlacesOfPositions(const std::int64_t* positions, std::int64_t count, std::int64_t size)
      : of(static_cast<std::size_t>(count)) {
    if (is_sparse(count, size)) {
      std::iota(of.begin(), of.end(), std::int64_t{0});
      std::stable_sort(of.begin(), of.end(), [positions](std::int64_t a, std::int64_t b) {
        return positions[a] < positions[b];
      });
    } else {
      sort_by_counting(positions, size);
    }
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t position = positions[of[static_cast<std::size_t>(k)]];
      if (!pointed.empty() && pointed.back() == position) continue;
      pointed.push_back(position);
      starts.push_back(k);
    }
    starts.push_back(count);
  }

 private:
  void sort_by_counting(const std::int64_t* positions, std::int64_t size) {
    const auto count = static_cast<std::int64_t>(of.size());
    std::vector<std::int64_t> ends(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < count; ++i) ++ends[static_cast<std::size_t>(positions[i])];
    std::inclusive_scan(ends.begin(), ends.end(), ends.begin());
    for (std::int64_t i = count; i-- > 0;)
      of[static_cast<std::size_t>(--ends[static_cast<std::size_t>(positions[i])])] = i;
  }
};

/// add_slices of halves: a slice adds up in f32, a block at a time, and is rounded once.
template <typename T>
void add_half_slices(const LocalTensor& out, int dim, const LocalTensor& index,
                     const LocalTensor& source, float alpha) {
  constexpr std::int64_t kBlock = 1024;
  const Slabs to(out.shape(), dim);
  const std::int64_t count = index.numel();
  if (out.numel() == 0) return;
  const PlacesOfPositions places(index.data_as<const std::int64_t>(), count, to.size);
  const T* const from = source.data_as<const T>();
  T* const target = out.data_as<T>();
  const ShapesOnly shapes_only = shapes_only_for(out.dtype());
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerTask / to.after);
  const auto different = static_cast<std::int64_t>(places.pointed.size());
  parallel_for(to.before * different, grain, [&](std::int64_t begin, std::int64_t end) {
    float sums[kBlock], part[kBlock];
    for (std::int64_t i = begin; i < end; ++i) {
      const auto which = static_cast<std::size_t>(i % different);
      const auto last = static_cast<std::size_t>(places.starts[which + 1]);
      const std::int64_t slice = i / different * to.size + places.pointed[which];
      const T* const parts = from + i / different * count * to.after;
      for (std::int64_t first = 0; first < to.after; first += kBlock) {
        const std::int64_t length = std::min(kBlock, to.after - first);
        T* const sum = target + slice * to.after + first;
        load_halves(sums, sum, length);
        for (auto k = static_cast<std::size_t>(places.starts[which]); k < last; ++k) {
          load_halves(part, parts + places.of[k] * to.after + first, length);
          for (std::int64_t j = 0; j < length; ++j) sums[j] += alpha * part[j];
        }
        store_halves(sum, sums, length);
      }
    }
  });
}

/// The lines of an index, with their offsets in the tensor that it points into and in the tensor of
/// the index' own shape.
struct IndexLines {
  const LocalTensor& index;
  const LocalTensor& pointed;
  const LocalTensor& other;
  int dim;

  /// From one element of a line to the next.
  struct Steps {
    std::int64_t index, pointed, other;
  };
  Steps steps() const {
    const auto d = static_cast<std::size_t>(dim);
    return {index.strides()[d], pointed.strides()[d], other.strides()[d]};
  }

  /// @param visit (line's first position, first element pointed into, first one beside the index)
  template <typename T, typename Visit>
  void for_each_line(const Visit& visit) const {
    const std::int64_t length = index.size(dim);
    if (index.numel() == 0) return;
    const ShapesOnly shapes_only = shapes_only_for(pointed.dtype());
    const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerTask / length);
    parallel_for(index.numel() / length, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t line = begin; line < end; ++line) {
        const auto start = [&](const LocalTensor& tensor) {
          return line_offset(index.shape(), tensor.strides(), dim, line);
        };
        visit(index.data_as<const std::int64_t>() + start(index),
              pointed.data_as<T>() + start(pointed), other.data_as<T>() + start(other));
      }
    });
  }

  /// @param visit (element pointed to, element beside the index)
  template <typename T, typename Visit>
  void for_each(const Visit& visit) const {
    const std::int64_t length = index.size(dim);
    const Steps step = steps();
    for_each_line<T>([&](const std::int64_t* positions, T* into, T* beside) {
      for (std::int64_t i = 0; i < length; ++i) {
        visit(into[positions[0] * step.pointed], *beside);
        positions += step.index;
        beside += step.other;
      }
    });
  }
};

/// What positions of a line of halves get: each adds up in f32, and is rounded once.
template <typename T>
struct HalfLine {
  T* into;
  const T* beside;
  const std::int64_t* positions;
  IndexLines::Steps step;
  std::int64_t size, length;

  /// All of the line in f32.
  void add_to_all() const {
    Scratch room(size * static_cast<std::int64_t>(sizeof(float)));
    float* const sums = reinterpret_cast<float*>(room.data());
    for (std::int64_t i = 0; i < size; ++i) sums[i] = Element<T>::load(into[i * step.pointed]);
    for (std::int64_t i = 0; i < length; ++i)
      sums[positions[i * step.index]] += Element<T>::load(beside[i * step.other]);
    for (std::int64_t i = 0; i < size; ++i) into[i * step.pointed] = Element<T>::store(sums[i]);
  }

  /// Position by position.
  void add_to_few() const {
    struct Part {
      std::int64_t position, place;
    };
    Scratch room(length * static_cast<std::int64_t>(sizeof(Part)));
    Part* const parts = reinterpret_cast<Part*>(room.data());
    for (std::int64_t i = 0; i < length; ++i) parts[i] = {positions[i * step.index], i};
    std::sort(parts, parts + length, [](const Part& a, const Part& b) {
      return a.position != b.position ? a.position < b.position : a.place < b.place;
    });
    for (std::int64_t i = 0; i < length;) {
      const std::int64_t position = parts[i].position;
      T& target = into[position * step.pointed];
      float sum = Element<T>::load(target);
      for (; i < length && parts[i].position == position; ++i)
        sum += Element<T>::load(beside[parts[i].place * step.other]);
      target = Element<T>::store(sum);
    }
  }
};

template <typename T>
void add_half_lines(const IndexLines& lines) {
  const std::int64_t size = lines.pointed.size(lines.dim), length = lines.index.size(lines.dim);
  lines.for_each_line<T>([&](const std::int64_t* positions, T* into, const T* beside) {
    const HalfLine<T> line{into, beside, positions, lines.steps(), size, length};
    is_sparse(length, size) ? line.add_to_few() : line.add_to_all();
  });
}

/// @tparam F a function of arithmetic.h
template <typename F>
void fold_elements(const IndexLines& lines) {
  dispatch(lines.pointed.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    lines.for_each<T>([](T& all, const T& part) {
      all = Element<T>::store(F::apply(Element<T>::load(all), Element<T>::load(part)));
    });
  });
}

void add_elements(const IndexLines& lines) {
  const DType dtype = lines.pointed.dtype();
  if (dtype == DType::f16) return add_half_lines<Float16>(lines);
  if (dtype == DType::bf16) return add_half_lines<BFloat16>(lines);
  fold_elements<Add>(lines);
}

void fold_elements(cuda::Placing placing, const IndexLines& lines) {
  switch (placing) {
    case cuda::Placing::product:
      return fold_elements<Multiply>(lines);
    case cuda::Placing::greatest:
      return fold_elements<Max>(lines);
    case cuda::Placing::least:
      return fold_elements<Min>(lines);
    default:
      return add_elements(lines);
  }
}

/// Dispatches by element size; the dtype does not matter for copying.
template <typename Visit>
void for_each_by_size(const IndexLines& lines, const Visit& visit) {
  switch (item_size(lines.pointed.dtype())) {
    case 1:
      return lines.for_each<std::uint8_t>(visit);
    case 2:
      return lines.for_each<std::uint16_t>(visit);
    case 4:
      return lines.for_each<std::uint32_t>(visit);
    default:
      return lines.for_each<std::uint64_t>(visit);
  }
}

std::int64_t first_wrong(const LocalTensor& index, const cuda::PositionRange& range) {
  if (!index.device().is_cpu()) return cuda::first_outside(index, range);
  const LocalTensor list = index.contiguous();
  const std::int64_t* const positions = list.data_as<const std::int64_t>();
  const std::int64_t count = list.numel();
  const auto wrong = std::find_if(positions, positions + count, [&range](std::int64_t position) {
    return position < range.first || position >= range.end;
  });
  return wrong == positions + count ? -1 : wrong - positions;
}

/// @param pointed what the positions are of; undefined where the caller does not say
void refuse_outside(std::string_view op, const LocalTensor& index, int dim,
                    const cuda::PositionRange& range, std::int64_t size,
                    const LocalTensor& pointed = {}) {
  const std::int64_t wrong = first_wrong(index, range);
  if (wrong < 0) return;
  const LocalTensor list = index.reshape({-1});
  const PlaceError error(
      wrong, index.shape(),
      {.before = fmt::format("{}: position ", op),
       .after = fmt::format(" of dim {} is {}, in positions of shape ", dim,
                            list.narrow(0, wrong, 1).to_vector_i64()[0]),
       .tells_shape = true,
       .why = fmt::format("the dim has {} elements", size),
       .remedy = fmt::format("positions from {} to {}", range.first, range.end - 1)});
  if (!pointed.defined()) throw error;
  throw error.into(
      fmt::format("{}{}", dtype_short_name(pointed.dtype()), shape_to_string(pointed.shape())));
}

void check_positions_into(std::string_view op, const LocalTensor& a, int dim,
                          const LocalTensor& index) {
  const std::int64_t size = a.size(dim);
  refuse_outside(op, index, dim, {0, size}, size, a);
}

/// Checks that the index' shape fits the tensor that it points into along `dim`.
void require_beside(std::string_view op, const LocalTensor& a, int dim, const LocalTensor& index) {
  require_one_device(op, a, index);
  require_positions(op, index);
  bool fits = a.dim() == index.dim();
  for (int d = 0; fits && d < a.dim(); ++d) fits = d == dim || index.size(d) <= a.size(d);
  if (!fits) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} of a tensor of shape {} along dim {} with positions of shape {}",
                            op, shape_to_string(a.shape()), dim, shape_to_string(index.shape())),
                "they have as many dims, and are no larger in the others",
                fmt::format("positions of {} dims, by unsqueeze() or expand()", a.dim()));
  }
  check_positions_into(op, a, dim, index);
}

struct Beside {
  LocalTensor a, index;
  int dim;
};
Beside beside(std::string_view op, const LocalTensor& a, int dim, const LocalTensor& index) {
  const Beside both{with_a_dim(a), with_a_dim(index), line_dim(dim, a)};
  require_beside(op, both.a, both.dim, both.index);
  return both;
}

}  // namespace

void check_positions(std::string_view op, const LocalTensor& index, int dim, std::int64_t size) {
  require_positions(op, index);
  refuse_outside(op, index, dim, {0, size}, size);
}

LocalTensor positions_from_start(std::string_view op, const LocalTensor& index, int dim,
                                 std::int64_t size) {
  require_positions(op, index);
  refuse_outside(op, index, dim, {-size, size}, size);
  const LocalTensor out = index.clone();
  if (!out.device().is_cpu()) {
    cuda::count_from_start(out, size);
    return out;
  }
  std::int64_t* const positions = out.data_as<std::int64_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    if (positions[i] < 0) positions[i] += size;
  }
  return out;
}

LocalTensor index_select(const LocalTensor& tensor, int dim, const LocalTensor& index) {
  require_one_device("index_select", tensor, index);
  require_positions("index_select", index);
  require_list("index_select", index);
  dim = line_dim(dim, tensor);
  const LocalTensor a = with_a_dim(tensor).contiguous(), list = index.contiguous();
  check_positions_into("index_select", a, dim, list);
  const LocalTensor out = empty(with_size(a.shape(), dim, list.numel()), {a.dtype(), a.device()});
  if (!out.device().is_cpu()) cuda::pick_slices(out, a, dim, list);
  if (out.numel() == 0 || !out.device().is_cpu()) return tensor.dim() == 0 ? out.view({}) : out;
  const ShapesOnly shapes_only = shapes_only_for(out.dtype());
  const Slabs from(a.shape(), dim);
  const std::int64_t count = list.numel();
  const std::int64_t* const positions = list.data_as<const std::int64_t>();
  const auto bytes = from.after * static_cast<std::int64_t>(item_size(a.dtype()));
  const char* const source = static_cast<const char*>(a.data());
  char* const target = static_cast<char*>(out.data());
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerTask / from.after);
  parallel_for(from.before * count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t place = i % count, some = std::min(count - place, end - i);
      pick_slices({target + i * bytes, source + i / count * from.size * bytes, positions + place,
                   some, count - place},
                  bytes);
      i += some;
    }
  });
  return tensor.dim() == 0 ? out.view({}) : out;
}

LocalTensor index_add(const LocalTensor& tensor, int dim, const LocalTensor& index,
                      const LocalTensor& source, Scalar alpha) {
  require_one_device("index_add", tensor, index);
  require_positions("index_add", index);
  require_list("index_add", index);
  dim = line_dim(dim, tensor);
  // The source has as many dims as the tensor.
  if (tensor.dim() != source.dim()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("index_add of {} into {}", shape_to_string(source.shape()),
                            shape_to_string(tensor.shape())),
                "the source has another number of dims", "reshape() it");
  }
  const LocalTensor a = with_a_dim(tensor), list = index.contiguous();
  require_source("index_add", a, with_a_dim(source), with_size(a.shape(), dim, list.numel()));
  check_positions_into("index_add", a, dim, list);
  if (is_half(a.dtype()) && !a.device().is_cpu()) {
    return index_add(tensor.to(DType::f32), dim, list, source.to(DType::f32), alpha).to(a.dtype());
  }
  const LocalTensor out = a.clone();
  if (!out.device().is_cpu()) {
    Shape line(a.shape().size(), 1);
    line[static_cast<std::size_t>(dim)] = list.numel();
    const LocalTensor parts = with_a_dim(source);
    cuda::place_elements(cuda::Placing::sum, out, dim, list.view(line).expand(parts.shape()), parts,
                         alpha);
    return tensor.dim() == 0 ? out.view({}) : out;
  }
  dispatch(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto factor = alpha.is_floating() ? static_cast<ComputeType<T>>(alpha.to_double())
                                            : static_cast<ComputeType<T>>(alpha.to_i64());
    if constexpr (sizeof(T) == 2 && std::is_same_v<ComputeType<T>, float>) {
      add_half_slices<T>(out, dim, list, source.contiguous(), factor);
    } else {
      add_slices<T>(out, dim, list, source.contiguous(), factor);
    }
  });
  return tensor.dim() == 0 ? out.view({}) : out;
}

LocalTensor gather(const LocalTensor& a, int dim, const LocalTensor& index) {
  const Beside both = beside("gather", a, dim, index);
  const LocalTensor out = empty(both.index.shape(), {a.dtype(), a.device()});
  if (!a.device().is_cpu()) {
    cuda::gather_elements(out, both.a, both.dim, both.index);
  } else {
    for_each_by_size({both.index, both.a, out, both.dim},
                     [](auto& element, auto& result) { result = element; });
  }
  return index.dim() == 0 ? out.view({}) : out;
}

LocalTensor scatter(const LocalTensor& a, int dim, const LocalTensor& index,
                    const LocalTensor& source) {
  const Beside both = beside("scatter", a, dim, index);
  const LocalTensor parts = with_a_dim(beside_index("scatter", a, source, index.shape()));
  const LocalTensor out = both.a.clone();
  if (!a.device().is_cpu()) {
    cuda::place_elements(cuda::Placing::last, out, both.dim, both.index, parts);
  } else {
    for_each_by_size({both.index, out, parts, both.dim},
                     [](auto& element, auto& value) { element = value; });
  }
  return a.dim() == 0 ? out.view({}) : out;
}

LocalTensor scatter(const LocalTensor& a, int dim, const LocalTensor& index, Scalar value) {
  return scatter(a, dim, index, full({}, value, {a.dtype(), a.device()}).expand(index.shape()));
}

namespace {

/// Checks nothing.
LocalTensor fold_into(cuda::Placing placing, const Beside& both, const LocalTensor& parts) {
  const bool is_cpu = both.a.device().is_cpu();
  // The host's sums of halves are in f32 as it is; an extreme is one of the halves.
  const bool folds_in_f32 =
      placing == cuda::Placing::product || (placing == cuda::Placing::sum && !is_cpu);
  if (is_half(both.a.dtype()) && folds_in_f32) {
    return fold_into(placing, {both.a.to(DType::f32), both.index, both.dim}, parts.to(DType::f32))
        .to(both.a.dtype());
  }
  const LocalTensor out = both.a.clone();
  if (is_cpu) {
    fold_elements(placing, {both.index, out, parts, both.dim});
  } else {
    cuda::place_elements(placing, out, both.dim, both.index, parts);
  }
  return out;
}

LocalTensor folded(std::string_view op, cuda::Placing placing, const LocalTensor& a, int dim,
                   const LocalTensor& index, const LocalTensor& source) {
  const Beside both = beside(op, a, dim, index);
  const LocalTensor parts = with_a_dim(beside_index(op, a, source, index.shape()));
  return fold_into(placing, both, parts).view(a.shape());
}

/// What is there counts as one.
LocalTensor folded_mean(const LocalTensor& a, int dim, const LocalTensor& index,
                        const LocalTensor& source) {
  if (a.dtype() == DType::boolean) {
    throw Error(ErrorCode::kInvalidArgument, "scatter_reduce of bool tensors to their mean",
                "a mean of truth values is none", "to(DType::f32) first");
  }
  const Beside both = beside("scatter_reduce", a, dim, index);
  const LocalTensor parts = with_a_dim(beside_index("scatter_reduce", a, source, index.shape()));
  const bool is_floating = is_floating_point(a.dtype());
  const DType wide = !is_floating ? DType::i64 : is_half(a.dtype()) ? DType::f32 : a.dtype();
  const auto sum_of = [&both](const LocalTensor& into, const LocalTensor& from) {
    return fold_into(cuda::Placing::sum, {into, both.index, both.dim}, from);
  };
  const TensorOptions whole{DType::i64, a.device()};
  const LocalTensor sums = sum_of(both.a.to(wide), parts.to(wide));
  const LocalTensor counts = sum_of(ones(both.a.shape(), whole), ones(both.index.shape(), whole));
  const LocalTensor means = is_floating ? div(sums, counts.to(wide)) : floor_divide(sums, counts);
  return means.to(a.dtype()).view(a.shape());
}

}  // namespace

LocalTensor scatter_add(const LocalTensor& a, int dim, const LocalTensor& index,
                        const LocalTensor& source) {
  return folded("scatter_add", cuda::Placing::sum, a, dim, index, source);
}

LocalTensor scatter_reduce(const LocalTensor& a, int dim, const LocalTensor& index,
                           const LocalTensor& source, ScatterReduce reduce) {
  switch (reduce) {
    case ScatterReduce::sum:
      return folded("scatter_reduce", cuda::Placing::sum, a, dim, index, source);
    case ScatterReduce::prod:
      return folded("scatter_reduce", cuda::Placing::product, a, dim, index, source);
    case ScatterReduce::amax:
      return folded("scatter_reduce", cuda::Placing::greatest, a, dim, index, source);
    case ScatterReduce::amin:
      return folded("scatter_reduce", cuda::Placing::least, a, dim, index, source);
    case ScatterReduce::mean:
      break;
  }
  return folded_mean(a, dim, index, source);
}

LocalTensor one_hot(const LocalTensor& positions, std::int64_t count) {
  require_positions("one_hot", positions);
  check_positions("one_hot", positions, positions.dim(), count);
  Shape shape = positions.shape();
  shape.push_back(count);
  return scatter(zeros(shape, {DType::i64, positions.device()}), -1, positions.unsqueeze(-1), 1);
}

}  // namespace dtrun::tensors
