#include "copy_kernel.h"

#include <algorithm>
#include <cstring>

#include "element.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

template <typename To, typename From>
DTRUN_MULTIVERSION void convert_run(To* target, const From* source, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = convert_element<To>(source[i]);
}

/// Of pairs that few convert between: one version of them is compiled.
template <typename To, typename From>
void convert_rare_run(To* target, const From* source, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = convert_element<To>(source[i]);
}
template <typename To, typename From, typename T>
constexpr bool kHas = std::is_same_v<To, T> || std::is_same_v<From, T>;
template <typename To, typename From>
constexpr bool kAreIntegers =
    std::is_integral_v<ComputeType<To>>&& std::is_integral_v<ComputeType<From>>;
template <typename To, typename From>
constexpr bool kIsRare = kHas<To, From, std::int16_t> ||
                         (kHas<To, From, std::int8_t> && kAreIntegers<To, From>);

template <typename To, typename From>
void convert_row(char* const* operands, const std::int64_t* strides, std::int64_t count) {
  char* target = operands[0];
  const char* source = operands[1];
  if (strides[0] == sizeof(To) && strides[1] == sizeof(From)) {
    To* const to = reinterpret_cast<To*>(target);
    const From* const from = reinterpret_cast<const From*>(source);
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
    } else if constexpr (kIsRare<To, From>) {
      convert_rare_run(to, from, count);
    } else {
      convert_run(to, from, count);
    }
    return;
  }
  if (strides[0] == sizeof(To) && strides[1] == 0) {
    const To value = convert_element<To>(*reinterpret_cast<const From*>(source));
    std::fill_n(reinterpret_cast<To*>(target), count, value);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    *reinterpret_cast<To*>(target) = convert_element<To>(*reinterpret_cast<const From*>(source));
    target += strides[0];
    source += strides[1];
  }
}

}  // namespace

RowKernel copy_kernel(DType target, DType source) {
  return dispatch(target, [source](auto to) {
    return dispatch(source, [](auto from) -> RowKernel {
      return &convert_row<typename decltype(to)::Type, typename decltype(from)::Type>;
    });
  });
}

}  // namespace dtrun::tensors
