#include "support/conformance_values.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "dtrun/tensor/ops.h"

namespace dtrun::conformance {

namespace {

std::int64_t wrapped(DType dtype, std::int64_t value) {
  if (dtype == DType::u8) return static_cast<std::uint8_t>(value);
  if (dtype == DType::i8) return static_cast<std::int8_t>(value);
  if (dtype == DType::i16) return static_cast<std::int16_t>(value);
  if (dtype == DType::i32) return static_cast<std::int32_t>(value);
  return value;
}

double value_of(DType dtype, ReduceOp op, int rank, std::int64_t index, int salt) {
  const std::int64_t mix = index * 3 + rank * 7 + salt * 5;
  if (dtype == DType::boolean) return index % 4 == 0 || mix % 3 != 0 ? 1 : 0;
  if (op == ReduceOp::product) {
    constexpr double kFactors[] = {1, 2, 1, -1, 2};
    const double factor = kFactors[mix % 5];
    return dtype == DType::u8 ? std::abs(factor) : factor;
  }
  const std::int64_t value = mix % 11;
  return static_cast<double>(dtype == DType::u8 ? value : value - 4);
}

std::int64_t combine_integers(DType dtype, ReduceOp op, std::int64_t a, std::int64_t b) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return boolean ? (a | b) : wrapped(dtype, a + b);
    case ReduceOp::product:
      return boolean ? (a & b) : wrapped(dtype, a * b);
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
    case ReduceOp::premul_sum:  // of floating point only
      break;
  }
  return 0;
}

double combine(DType dtype, ReduceOp op, double a, double b) {
  if (!tensors::is_floating_point(dtype))
    return static_cast<double>(
        combine_integers(dtype, op, static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
  switch (op) {
    case ReduceOp::product:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

double tolerance(DType dtype, ReduceOp op) {
  if (op != ReduceOp::avg || !tensors::is_floating_point(dtype)) return 0;
  switch (dtype) {
    case DType::f64:
      return 1e-14;
    case DType::f32:
      return 1e-6;
    case DType::f16:
      return 2e-3;
    default:
      return 2e-2;
  }
}

}  // namespace

Values values_of(DType dtype, ReduceOp op, int rank, std::int64_t count, int salt) {
  Values values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = value_of(dtype, op, rank, i, salt);
  return values;
}

double factor_of(int rank) {
  constexpr double kFactors[] = {2, -1, 0.5};
  return kFactors[rank % 3];
}

Values reduced(DType dtype, ReduceOp op, int size, std::int64_t count, int salt) {
  const auto term = [&](int rank, std::int64_t i) {
    const double value = value_of(dtype, op, rank, i, salt);
    return op == ReduceOp::premul_sum ? factor_of(rank) * value : value;
  };
  Values total(static_cast<std::size_t>(count));
  for (int rank = 0; rank < size; ++rank)
    for (std::int64_t i = 0; i < count; ++i) {
      double& element = total[static_cast<std::size_t>(i)];
      element = rank == 0 ? term(0, i) : combine(dtype, op, element, term(rank, i));
    }
  if (op != ReduceOp::avg) return total;
  for (double& element : total) {
    element /= size;
    if (!tensors::is_floating_point(dtype)) element = std::trunc(element);
  }
  return total;
}

LocalTensor make(const Values& values, DType dtype, Layout layout, tensors::Device device) {
  const std::int64_t count = static_cast<std::int64_t>(values.size());
  const LocalTensor dense = tensors::tensor_from(values, {count}, dtype).to(device);
  if (layout == Layout::contiguous) return dense;
  const LocalTensor every_second =
      tensors::zeros({count, 2}, {.dtype = dtype, .device = device}).select(1, 1);
  every_second.copy_(dense);
  return every_second;
}

std::string difference(const LocalTensor& actual, const Values& expected, ReduceOp op) {
  const Values values = actual.to(tensors::kCpu).to_vector();
  if (values.size() != expected.size())
    return fmt::format("{} elements, expected {}", values.size(), expected.size());
  const double relative = tolerance(actual.dtype(), op);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - expected[i]) <= relative * std::abs(expected[i])))
      return fmt::format("element {} is {}, expected {}", i, values[i], expected[i]);
  return "";
}

}  // namespace dtrun::conformance
