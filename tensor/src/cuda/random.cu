#include "cuda/random.h"

#include "cuda/for_each.h"
#include "cuda/strided_layout.h"
#include "element.h"
#include "formulas/random.h"
#include "normal_number.h"

namespace dtrun::tensors::cuda {
namespace {

/// A block of a larger tensor: the global index of its element i. Dims that lie one after the other
/// in both are merged.
struct BlockIndex {
  int rank = 0;
  std::int64_t sizes[kMaxLayoutDims] = {};  ///< of the block, innermost first
  std::int64_t offsets[kMaxLayoutDims] = {};
  std::int64_t steps[kMaxLayoutDims] = {};  ///< of the global tensor

  DTRUN_BOTH std::int64_t of(std::int64_t i) const {
    std::int64_t index = 0;
    for (int d = 0; d < rank; ++d) {
      const std::int64_t position = d + 1 < rank ? i % sizes[d] : i;
      index += (offsets[d] + position) * steps[d];
      i /= sizes[d];
    }
    return index;
  }
};

BlockIndex index_of(const RandomBlock& block) {
  const Strides steps = contiguous_strides(block.global_shape);
  BlockIndex index;
  bool is_whole = false;  // the dim before
  for (std::size_t d = block.shape.size(); d-- > 0;) {
    const bool merges = is_whole && index.rank > 0;
    is_whole = block.shape[d] == block.global_shape[d];
    const int last = index.rank - 1;
    if (merges) {
      index.offsets[last] = block.offsets[d] * index.sizes[last];
      index.sizes[last] *= block.shape[d];
      continue;
    }
    if (index.rank == kMaxLayoutDims) refuse_dims(block.shape);
    index.sizes[index.rank] = block.shape[d];
    index.offsets[index.rank] = block.offsets[d];
    index.steps[index.rank] = steps[d];
    ++index.rank;
  }
  return index;
}

/// Index: two neighbours of the block, which share their random bits where they are a pair.
template <typename Numbers>
struct FillRandom {
  BlockIndex index;
  Numbers numbers;
  void* target;
  DType dtype;
  std::int64_t count;

  template <typename Number>
  DTRUN_BOTH void store(std::int64_t i, Number number) const {
    dispatch(dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      static_cast<T*>(target)[i] = convert_element<T>(number);
    });
  }

  DTRUN_BOTH void operator()(std::int64_t two) const {
    std::int64_t known = -1;
    typename Numbers::Pair pair{};
    for (std::int64_t i = 2 * two; i < 2 * two + 2 && i < count; ++i) {
      const std::int64_t place = index.of(i);
      if (place / 2 != known) {
        known = place / 2;
        pair = numbers.pair(static_cast<std::uint64_t>(known));
      }
      numbers.make(place % 2 != 0 ? pair.odd : pair.even, i,
                   [&](auto number) { store(i, number); });
    }
  }
};

struct NormalNumbers {
  using Pair = NormalPair;
  RandomKey key;

  DTRUN_BOTH Pair pair(std::uint64_t which) const { return normal_pair(key, which); }
  template <typename Store>
  DTRUN_BOTH void make(double number, std::int64_t, const Store& store) const {
    store(number);
  }
};

struct NumbersOfBits {
  using Pair = formulas::RandomPair;
  RandomNumbers numbers;
  double unit;
  DType dtype;  ///< of the target

  DTRUN_BOTH Pair pair(std::uint64_t which) const {
    return formulas::random_pair(numbers.key, which);
  }
  /// The mask, or what it multiplies.
  template <typename Number>
  DTRUN_BOTH Number masked(std::uint64_t random, std::int64_t i) const {
    const Number mask =
        formulas::is_dropped(random, numbers.dropped) ? 0 : static_cast<Number>(numbers.kept);
    if (numbers.factors == nullptr) return mask;
    return dispatch(dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      return mask * convert_element<Number>(static_cast<const T*>(numbers.factors)[i]);
    });
  }

  template <typename Store>
  DTRUN_BOTH void make(std::uint64_t random, std::int64_t i, const Store& store) const {
    const bool is_double = dtype == DType::f64;
    if (numbers.form == RandomForm::whole) {
      return store(formulas::whole_number(random, numbers.low, numbers.range));
    }
    if (numbers.form == RandomForm::mask) {
      return is_double ? store(masked<double>(random, i)) : store(masked<float>(random, i));
    }
    if (is_double) return store(formulas::uniform_number(random, numbers.bits, unit));
    store(formulas::uniform_number(random, numbers.bits, static_cast<float>(unit)));
  }
};

}  // namespace

void fill_random(const LocalTensor& target, const RandomBlock& block,
                 const RandomNumbers& numbers) {
  const BlockIndex index = index_of(block);
  const std::int64_t count = target.numel();
  const Stream stream = current_stream(target.device().index);
  if (numbers.form == RandomForm::normal) {
    for_each((count + 1) / 2,
             FillRandom<NormalNumbers>{index, {numbers.key}, target.data(), target.dtype(), count},
             stream);
    return;
  }
  const NumbersOfBits of_bits{numbers, std::ldexp(1.0, -numbers.bits), target.dtype()};
  for_each((count + 1) / 2,
           FillRandom<NumbersOfBits>{index, of_bits, target.data(), target.dtype(), count}, stream);
}

}  // namespace dtrun::tensors::cuda
