#include <bit>

#include "cuda/for_each.h"
#include "cuda/kernels.h"
#include "cuda/strided_layout.h"
#include "element.h"

namespace dtrun::tensors::cuda {
namespace {

/// Four neighbours per call where both lie in runs: one access each on either side.
constexpr std::int64_t kGroup = 4;

template <typename T>
struct alignas(sizeof(T) * kGroup) Group {
  T items[kGroup];
};

template <typename To>
struct ConvertGroups {
  To* target;
  const void* source;
  DType source_dtype;
  std::int64_t count;

  DTRUN_BOTH void operator()(std::int64_t group) const {
    const std::int64_t first = group * kGroup;
    dispatch(source_dtype, [&](auto tag) {
      using From = typename decltype(tag)::Type;
      const From* from = static_cast<const From*>(source) + first;
      if (first + kGroup <= count) {
        const Group<From> in = *reinterpret_cast<const Group<From>*>(from);
        Group<To> out;
        for (int k = 0; k < kGroup; ++k) out.items[k] = convert_element<To>(in.items[k]);
        *reinterpret_cast<Group<To>*>(target + first) = out;
      } else {
        for (std::int64_t k = 0; first + k < count; ++k) {
          target[first + k] = convert_element<To>(from[k]);
        }
      }
    });
  }
};

template <typename To>
struct ConvertStrided {
  StridedLayout<2> layout;
  To* target;
  const void* source;
  DType source_dtype;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    dispatch(source_dtype, [&](auto tag) {
      using From = typename decltype(tag)::Type;
      target[offsets.of[0]] = convert_element<To>(static_cast<const From*>(source)[offsets.of[1]]);
    });
  }
};

template <typename T>
struct MoveStrided {
  StridedLayout<2> layout;
  T* target;
  const T* source;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    target[offsets.of[0]] = source[offsets.of[1]];
  }
};

/// Runs of 16 bytes, and what is left.
template <typename T>
struct FillRun {
  T* target;
  T value;
  std::int64_t count;

  DTRUN_BOTH void operator()(std::int64_t pack) const {
    constexpr std::int64_t kSize = Pack<T>::kSize;
    const std::int64_t first = pack * kSize;
    if (first + kSize <= count) {
      Pack<T> out;
      for (int k = 0; k < kSize; ++k) out.items[k] = value;
      *reinterpret_cast<Pack<T>*>(target + first) = out;
    } else {
      for (std::int64_t i = first; i < count; ++i) target[i] = value;
    }
  }
};

template <typename T>
struct FillStrided {
  StridedLayout<1> layout;
  T* target;
  T value;

  DTRUN_BOTH void operator()(std::int64_t i) const { target[layout.offsets(i).of[0]] = value; }
};

/// Calls function(TypeTag<T>{}) with an unsigned type of that size.
template <typename Function>
void dispatch_size(std::size_t item_size, Function&& function) {
  switch (item_size) {
    case 1:
      return function(TypeTag<std::uint8_t>{});
    case 2:
      return function(TypeTag<std::uint16_t>{});
    case 4:
      return function(TypeTag<std::uint32_t>{});
    default:
      return function(TypeTag<std::uint64_t>{});
  }
}

bool is_group_aligned(const LocalTensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data()) %
             (item_size(tensor.dtype()) * static_cast<std::size_t>(kGroup)) ==
         0;
}

/// Same dtype: only the size of the elements counts.
void move(const StridedLayout<2>& layout, const LocalTensor& target, const LocalTensor& source) {
  dispatch_size(item_size(target.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for_each(layout.count,
             MoveStrided<T>{layout, target.data_as<T>(), static_cast<const T*>(source.data())},
             current_stream(target.device().index));
  });
}

}  // namespace

void convert(const LocalTensor& target, const LocalTensor& source) {
  const auto layout = make_layout<2>(target.shape(), {&target.strides(), &source.strides()});
  if (target.dtype() == source.dtype()) return move(layout, target, source);
  const Stream stream = current_stream(target.device().index);
  const bool in_groups = target.is_contiguous() && source.is_contiguous() &&
                         is_group_aligned(target) && is_group_aligned(source);
  dispatch(target.dtype(), [&](auto tag) {
    using To = typename decltype(tag)::Type;
    if (in_groups) {
      for_each((layout.count + kGroup - 1) / kGroup,
               ConvertGroups<To>{target.data_as<To>(), source.data(), source.dtype(), layout.count},
               stream);
    } else {
      for_each(layout.count,
               ConvertStrided<To>{layout, target.data_as<To>(), source.data(), source.dtype()},
               stream);
    }
  });
}

void fill(const LocalTensor& target, std::uint64_t bits) {
  const auto layout = make_layout<1>(target.shape(), {&target.strides()});
  const Stream stream = current_stream(target.device().index);
  dispatch_size(item_size(target.dtype()), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* data = target.data_as<T>();
    const T value = static_cast<T>(bits);
    if (target.is_contiguous() && is_aligned(data)) {
      const std::int64_t packs = (layout.count + Pack<T>::kSize - 1) / Pack<T>::kSize;
      for_each(packs, FillRun<T>{data, value, layout.count}, stream);
    } else {
      for_each(layout.count, FillStrided<T>{layout, data, value}, stream);
    }
  });
}

}  // namespace dtrun::tensors::cuda
