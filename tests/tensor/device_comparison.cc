#include "tensor/device_comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

bool same_bits(const LocalTensor& a, const LocalTensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (!is_floating_point(a.dtype())) return a.to_vector_i64() == b.to_vector_i64();
  const std::vector<double> left = a.to_vector();
  const std::vector<double> right = b.to_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(left[i]) && std::isnan(right[i])) continue;
    if (std::memcmp(&left[i], &right[i], sizeof(double)) != 0) return false;
  }
  return true;
}

/// How far apart numbers of that dtype may be that were computed in another order.
double tolerance(DType dtype) {
  return dtype == DType::f64   ? 1e-12
         : dtype == DType::f32 ? 1e-5
         : dtype == DType::f16 ? 2e-3
                               : 2e-2;
}

}  // namespace

void expect_same(const LocalTensor& got, const LocalTensor& expected, Device device,
                 const std::string& what) {
  EXPECT_EQ(got.device(), device) << what;
  EXPECT_TRUE(same_bits(got, expected))
      << what << "\ngot " << got.to_string() << "\nnot " << expected.to_string();
}

void expect_close(const LocalTensor& got, const LocalTensor& expected, Device device,
                  const std::string& what) {
  EXPECT_EQ(got.device(), device) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const std::vector<double> left = got.to_vector();
  const std::vector<double> right = expected.to_vector();
  double scale = 0;
  for (const double x : right) {
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    const double allowed = tolerance(got.dtype()) * (std::fabs(right[i]) + scale);
    ASSERT_LE(std::fabs(left[i] - right[i]), allowed) << what << ", element " << i;
  }
}

LocalTensor numbers(const Shape& shape, DType dtype, std::uint64_t seed) {
  const LocalTensor values = randn(shape, {seed, 1}, {.dtype = DType::f64}) * 20.0;
  if (dtype == DType::boolean) return values.to(DType::i64).to(DType::boolean);
  return (dtype == DType::u8 ? values * values : values).to(dtype);
}

std::vector<LocalTensor> layouts_of(DType dtype, std::uint64_t seed) {
  return {numbers({4, 6}, dtype, seed),
          numbers({6, 4}, dtype, seed + 1).transpose(0, 1),
          numbers({9, 14}, dtype, seed + 2).slice(0, 1, 9, 2).slice(1, 1, 13, 2),
          numbers({25}, dtype, seed + 3).slice(0, 1, 25).view({4, 6}),
          numbers({1, 6}, dtype, seed + 4).expand({4, 6}),
          numbers({4, 1}, dtype, seed + 5).expand({4, 6}),
          numbers({}, dtype, seed + 6).expand({4, 6})};
}

LocalTensor like(const LocalTensor& host, Device device) {
  const std::int64_t bytes = static_cast<std::int64_t>(host.storage()->bytes());
  const LocalTensor all = LocalTensor(host.storage(), DType::u8, {bytes}, {1}).to(device);
  return LocalTensor(all.storage(), host.dtype(), host.shape(), host.strides(), host.offset());
}

}  // namespace dtrun::tensors
