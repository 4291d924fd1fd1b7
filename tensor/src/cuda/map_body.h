// MapBody: the kernels of a family of pointwise operators, made of its function of elements: one
// for operands that are runs, one for all others. Which function, and how operands are stored, is
// asked for every element, with the same answer for all threads: far fewer kernels to compile, and
// most are bound by memory. For .cu files only.
#pragma once

#include "cuda/for_each.h"
#include "cuda/map.h"
#include "cuda/strided_layout.h"
#include "dtrun/base/check.h"
#include "element.h"

namespace dtrun::tensors::cuda {

/// Neighbours that a thread does at once where all operands are runs.
inline constexpr int kMapGroup = 4;

template <typename T>
struct alignas(sizeof(T) * kMapGroup < 16 ? sizeof(T) * kMapGroup : 16) MapGroup {
  T items[kMapGroup];
};

template <typename C, typename T>
DTRUN_BOTH C to_compute(T stored) {
  return convert_number<C>(Element<T>::load(stored));
}

template <typename C>
DTRUN_BOTH C rounded_through(DType through, C value) {
  if constexpr (std::is_same_v<C, float>) {
    if (through == DType::f16) return to_float(to_float16(value));
    if (through == DType::bf16) return to_float(to_bfloat16(value));
  }
  if constexpr (std::is_same_v<C, std::int32_t>) {
    if (through == DType::u8) return static_cast<std::uint8_t>(value);
    if (through == DType::i8) return static_cast<std::int8_t>(value);
    if (through == DType::i16) return static_cast<std::int16_t>(value);
  }
  return value;
}

template <typename C>
DTRUN_BOTH C number_of(const MapInput& input) {
  if constexpr (std::is_floating_point_v<C>) return static_cast<C>(input.floating);
  if constexpr (!std::is_floating_point_v<C>) return static_cast<C>(input.integer);
}

template <typename C>
DTRUN_BOTH C load_element(const MapInput& input, std::int64_t offset) {
  if (input.data == nullptr) return number_of<C>(input);
  return dispatch(input.stored, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return rounded_through(input.through, to_compute<C>(static_cast<const T*>(input.data)[offset]));
  });
}

/// Calls function(TypeTag<T>{}) with how a result that was computed in C is stored.
template <typename C, typename Function>
DTRUN_BOTH void dispatch_result(DType dtype, Function&& function) {
  if constexpr (!std::is_same_v<C, bool>) {
    if (dtype != DType::boolean) {
      if constexpr (std::is_same_v<C, float>) {
        if (dtype == DType::f16) return function(TypeTag<Float16>{});
        if (dtype == DType::bf16) return function(TypeTag<BFloat16>{});
      }
      if constexpr (std::is_same_v<C, std::int32_t>) {
        if (dtype == DType::u8) return function(TypeTag<std::uint8_t>{});
        if (dtype == DType::i8) return function(TypeTag<std::int8_t>{});
        if (dtype == DType::i16) return function(TypeTag<std::int16_t>{});
      }
      return function(TypeTag<C>{});
    }
  }
  function(TypeTag<Boolean>{});
}

template <typename T, typename C>
DTRUN_BOTH T to_stored(C value) {
  return Element<T>::store(convert_number<ComputeType<T>>(value));
}

/// Index: group of neighbours.
template <typename Family, typename C>
struct MapRunBody {
  MapArguments arguments;
  std::int64_t count;

  DTRUN_BOTH void load(const MapInput& input, std::int64_t first, C (&values)[kMapGroup]) const {
    if (input.data == nullptr) {
#pragma unroll
      for (C& value : values) value = number_of<C>(input);
      return;
    }
    dispatch(input.stored, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      const T* const from = static_cast<const T*>(input.data) + first;
      MapGroup<T> group;
      if (first + kMapGroup <= count) {
        group = *reinterpret_cast<const MapGroup<T>*>(from);
      } else {  // the last elements, and the first of them again, which is as good as any
#pragma unroll
        for (int k = 0; k < kMapGroup; ++k) group.items[k] = from[first + k < count ? k : 0];
      }
#pragma unroll
      for (int k = 0; k < kMapGroup; ++k) {
        values[k] = rounded_through(input.through, to_compute<C>(group.items[k]));
      }
    });
  }

  DTRUN_BOTH void store(std::int64_t first, const C (&values)[kMapGroup]) const {
    dispatch_result<C>(arguments.target_dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      T* const to = static_cast<T*>(arguments.target) + first;
      if (first + kMapGroup <= count) {
        MapGroup<T> group;
#pragma unroll
        for (int k = 0; k < kMapGroup; ++k) group.items[k] = to_stored<T>(values[k]);
        *reinterpret_cast<MapGroup<T>*>(to) = group;
      } else {
        for (int k = 0; first + k < count; ++k) to[k] = to_stored<T>(values[k]);
      }
    });
  }

  DTRUN_BOTH void operator()(std::int64_t group) const {
    const std::int64_t first = group * kMapGroup;
    C in[kMostInputs][kMapGroup] = {};
#pragma unroll
    for (int k = 0; k < kMostInputs; ++k) {
      if (k < arguments.input_count) {
        load(arguments.inputs[static_cast<std::size_t>(k)], first, in[k]);
      }
    }
    C out[kMapGroup];
#pragma unroll
    for (int k = 0; k < kMapGroup; ++k) {
      out[k] = Family::apply(arguments, in[0][k], in[1][k], in[2][k]);
    }
    store(first, out);
  }
};

/// Index: element.
template <typename Family, typename C>
struct MapStridedBody {
  MapArguments arguments;
  StridedLayout<1 + kMostInputs> layout;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const auto offsets = layout.offsets(i);
    C in[kMostInputs] = {};
    for (int k = 0; k < kMostInputs; ++k) {
      if (k < arguments.input_count) {
        in[k] = load_element<C>(arguments.inputs[static_cast<std::size_t>(k)], offsets.of[1 + k]);
      }
    }
    const C out = Family::apply(arguments, in[0], in[1], in[2]);
    dispatch_result<C>(arguments.target_dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      static_cast<T*>(arguments.target)[offsets.of[0]] = to_stored<T>(out);
    });
  }
};

inline StridedLayout<1 + kMostInputs> layout_of(const MapCall& call) {
  const Shape& shape = call.target.shape();
  const Strides nowhere(shape.size(), 0);
  std::array<Strides, kMostInputs> strides;
  for (std::size_t k = 0; k < strides.size(); ++k) {
    strides[k] = call.tensors[k] == nullptr ? nowhere : call.tensors[k]->expand(shape).strides();
  }
  return make_layout<1 + kMostInputs>(
      shape, {&call.target.strides(), &strides[0], &strides[1], &strides[2]});
}

/// All of them are runs that begin where a group may.
inline bool is_run(const MapCall& call, const StridedLayout<1 + kMostInputs>& layout) {
  const auto fits = [](const void* data, DType dtype) {
    return reinterpret_cast<std::uintptr_t>(data) %
               std::min(item_size(dtype) * kMapGroup, std::size_t{16}) ==
           0;
  };
  if (layout.rank > 1 || !fits(call.arguments.target, call.target.dtype())) return false;
  if (layout.rank == 1 && layout.strides[0][0] != 1) return false;
  for (int k = 0; k < kMostInputs; ++k) {
    const MapInput& input = call.arguments.inputs[static_cast<std::size_t>(k)];
    if (input.data == nullptr) continue;
    if (!fits(input.data, input.stored)) return false;
    if (layout.rank == 1 && layout.strides[1 + k][0] != 1) return false;
  }
  return true;
}

template <typename Family, typename C>
void run_map(const MapCall& call) {
  const auto layout = layout_of(call);
  const Stream stream = current_stream(call.target.device().index);
  if (is_run(call, layout)) {
    for_each((layout.count + kMapGroup - 1) / kMapGroup,
             MapRunBody<Family, C>{call.arguments, layout.count}, stream);
  } else {
    for_each(layout.count, MapStridedBody<Family, C>{call.arguments, layout}, stream);
  }
}

/// For families of floating point.
template <typename Family>
void run_floating_map(const MapCall& call) {
  if (call.compute == DType::f64) return run_map<Family, double>(call);
  DT_CHECK(call.compute == DType::f32);
  run_map<Family, float>(call);
}

/// For families of all numbers.
template <typename Family>
void run_number_map(const MapCall& call) {
  if (call.compute == DType::i64) return run_map<Family, std::int64_t>(call);
  if (call.compute == DType::i32) return run_map<Family, std::int32_t>(call);
  run_floating_map<Family>(call);
}

}  // namespace dtrun::tensors::cuda
