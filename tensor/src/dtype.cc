#include "dtrun/tensor/dtype.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::string_view short_name;
};

constexpr DTypeRow kRows[] = {
    {DType::f64, "float64", "f64"}, {DType::f32, "float32", "f32"},
    {DType::f16, "float16", "f16"}, {DType::bf16, "bfloat16", "bf16"},
    {DType::i64, "int64", "i64"},   {DType::i32, "int32", "i32"},
    {DType::i16, "int16", "i16"},   {DType::i8, "int8", "i8"},
    {DType::u8, "uint8", "u8"},     {DType::boolean, "bool", "bool"},
};

const DTypeRow& row(DType dtype) {
  static_assert(std::size(kRows) == kDTypes);
  static_assert(kRows[kDTypes - 1].dtype == DType::boolean);
  return kRows[static_cast<int>(dtype)];
}

/// bool < {i8, u8} < i16 < i32 < i64 < {f16, bf16} < f32 < f64
int rank_in_lattice(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return 0;
    case DType::i8:
    case DType::u8:
      return 1;
    case DType::i16:
      return 2;
    case DType::i32:
      return 3;
    case DType::i64:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 5;
    case DType::f32:
      return 6;
    case DType::f64:
      return 7;
  }
  return 0;
}

}  // namespace

bool is_floating_point(DType dtype) {
  return rank_in_lattice(dtype) >= rank_in_lattice(DType::f16);
}

std::string_view dtype_name(DType dtype) {
  return row(dtype).name;
}

std::string_view dtype_short_name(DType dtype) {
  return row(dtype).short_name;
}

DType parse_dtype(std::string_view name) {
  for (const DTypeRow& candidate : kRows) {
    if (name == candidate.name || name == candidate.short_name) return candidate.dtype;
  }
  throw base::Error(
      base::ErrorCode::kInvalidArgument, fmt::format("'{}' is no dtype", name), "",
      "float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool");
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (rank_in_lattice(a) == rank_in_lattice(b))
    return is_floating_point(a) ? DType::f32 : DType::i16;
  return rank_in_lattice(a) > rank_in_lattice(b) ? a : b;
}

}  // namespace dtrun::tensors
