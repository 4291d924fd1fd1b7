#include "tensor/device_map.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/random.h"
#include "ops/map_call.h"
#include "tensor/device_comparison.h"

namespace dtrun::tensors {
namespace {

/// How near a device comes to the host's result.
enum class Nearness {
  bits,      ///< one formula for both
  ulps,      ///< each has its own function
  absolute,  ///< whose result is a difference
  product,   ///< of a difference with another operand
};

struct MapSample {
  const MapOperator& op;
  int operands;
  Nearness nearness = Nearness::bits;
  MapNumbers numbers = {};
};

constexpr Nearness kUlps = Nearness::ulps, kAbsolute = Nearness::absolute;
const MapSample kMapSamples[] = {
    {kAdd, 2},
    {kSub, 2},
    {kMul, 2},
    {kDiv, 2},
    {kMaximum, 2},
    {kMinimum, 2},
    {kFloorDivide, 2},
    {kTruncDivide, 2},
    {kRemainder, 2},
    {kFmod, 2},
    {kBitAnd, 2},
    {kBitOr, 2},
    {kBitXor, 2},
    {kBitNot, 1},
    {kShiftLeft, 2},
    {kShiftRight, 2},
    {kEqual, 2},
    {kNotEqual, 2},
    {kLess, 2},
    {kLessEqual, 2},
    {kLogicalAnd, 2},
    {kLogicalOr, 2},
    {kLogicalXor, 2},
    {kLogicalNot, 1},
    {kIsNan, 1},
    {kIsInf, 1},
    {kIsFinite, 1},
    {kNeg, 1},
    {kAbs, 1},
    {kSign, 1},
    {kSquare, 1},
    {kReciprocal, 1},
    {kSqrt, 1},
    {kRsqrt, 1},
    {kFloor, 1},
    {kCeil, 1},
    {kRound, 1},
    {kTrunc, 1},
    {kHardSigmoid, 1},
    {kRelu, 1},
    {kLeakyRelu, 1, Nearness::bits, MapNumbers::of(0.01)},
    {kClampNumbers, 1, Nearness::bits, {{-3, 7}, {-3, 7}}},
    {kHardtanh, 1, Nearness::bits, {{-1, 1}, {-1, 1}}},
    {kClamp, 3},
    {kLerp, 3},
    {kAddcmul, 3, Nearness::bits, MapNumbers::of(2)},
    {kAddcdiv, 3, Nearness::bits, MapNumbers::of(0.5)},
    {kExp, 1, kUlps},
    {kLog, 1, kUlps},
    {kLog2, 1, kUlps},
    {kLog10, 1, kUlps},
    {kLog1p, 1, kUlps},
    {kExpm1, 1, kUlps},
    {kErf, 1, kUlps},
    {kErfc, 1, kUlps},
    {kSigmoid, 1, kUlps},
    {kSilu, 1, kUlps},
    {kMish, 1, kUlps},
    {kGelu, 1, kAbsolute},
    {kGeluTanh, 1, kAbsolute},
    {kElu, 1, kUlps, MapNumbers::of(1.5)},
    {kSoftplus, 1, kUlps, MapNumbers::of(2.0, 20.0)},
    {kLogAddExp, 2, kAbsolute},
    {kSigmoidBackward, 2, Nearness::product},
    {kTanhBackward, 2, Nearness::product},
    {kSiluBackward, 2, Nearness::product},
    {kGeluBackward, 2, Nearness::product},
    {kGeluTanhBackward, 2, Nearness::product},
    {kSin, 1, kUlps},
    {kCos, 1, kUlps},
    {kTan, 1, kUlps},
    {kSinh, 1, kUlps},
    {kCosh, 1, kUlps},
    {kTanh, 1, kUlps},
    {kAsin, 1, kUlps},
    {kAcos, 1, kUlps},
    {kAtan, 1, kUlps},
    {kAsinh, 1, kUlps},
    {kAcosh, 1, kUlps},
    {kAtanh, 1, kUlps},
    {kAtan2, 2, kUlps},
    {kPow, 2, kUlps},
};

double ulp_of(DType dtype) {
  return dtype == DType::f64   ? 0x1p-52
         : dtype == DType::f32 ? 0x1p-23
         : dtype == DType::f16 ? 0x1p-10
                               : 0x1p-7;
}

/// Numbers under this have fewer bits.
double least_normal(DType dtype) {
  return dtype == DType::f64   ? std::numeric_limits<double>::min()
         : dtype == DType::f16 ? 0x1p-14
                               : 0x1p-126;
}

void expect_near(const LocalTensor& got, const LocalTensor& expected, Device device,
                 Nearness nearness, const std::string& what) {
  if (nearness == Nearness::bits || !is_floating_point(expected.dtype())) {
    return expect_same(got, expected, device, what);
  }
  EXPECT_EQ(got.device(), device) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const std::vector<double> left = got.to_vector(), right = expected.to_vector();
  const double ulp = ulp_of(got.dtype());
  const double ulps = ulp < 0x1p-20 ? 8 : 1;  // half types are computed in f32
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    // Of a difference of numbers near 1 that loses six bits, times numbers of any size.
    const double lost = nearness == Nearness::product ? 64 : 1;
    const double least = nearness == Nearness::ulps ? least_normal(got.dtype()) : lost;
    const double allowed = lost * ulps * ulp * std::max(std::fabs(right[i]), least);
    ASSERT_LE(std::fabs(left[i] - right[i]), allowed)
        << what << ", element " << i << ": " << left[i] << " and " << right[i];
  }
}

/// The result, or what was wrong.
struct Outcome {
  std::optional<LocalTensor> tensor;
  std::string error;
};
Outcome outcome_of(const std::function<LocalTensor()>& call) {
  try {
    return {call(), ""};
  } catch (const base::Error& error) {
    return {std::nullopt, error.what()};
  }
}

LocalTensor call_of(const MapSample& sample, const std::vector<Operand>& operands) {
  return map(sample.op, Operands(operands.data(), operands.size()), sample.numbers);
}

void expect_call_as_on_host(const MapSample& sample, const std::vector<LocalTensor>& host,
                            Device device, const std::string& what) {
  std::vector<LocalTensor> remote;
  for (const LocalTensor& tensor : host) remote.push_back(like(tensor, device));
  const Outcome expected = outcome_of([&] { return call_of(sample, {host.begin(), host.end()}); });
  const Outcome got = outcome_of([&] { return call_of(sample, {remote.begin(), remote.end()}); });
  ASSERT_EQ(got.error, expected.error) << what;
  if (got.tensor) expect_near(*got.tensor, *expected.tensor, device, sample.nearness, what);
}

/// No divisor is 0, and no power of an integer is huge.
LocalTensor second_operand(const MapOperator& op, const LocalTensor& any) {
  if (is_floating_point(any.dtype())) return any;
  if (&op == &kPow) return like(any.to(DType::u8).to(any.dtype()), kCpu);
  const LocalTensor values = any.clone();
  if (any.dtype() == DType::boolean) return values.fill_(1);
  const std::vector<std::int64_t> numbers = any.to_vector_i64();
  std::vector<std::int64_t> some;
  for (const std::int64_t number : numbers) some.push_back(number == 0 ? 3 : number);
  return tensor_from(some, any.shape(), DType::i64).to(any.dtype());
}

bool divides(const MapOperator& op) {
  return &op == &kFloorDivide || &op == &kTruncDivide || &op == &kRemainder || &op == &kFmod;
}

const std::vector<double>& special_values() {
  static const std::vector<double> values = {
      0.0,   -0.0, 1,   -1,  0.5,  2.5,   -2.5, 3.5,   INFINITY, -INFINITY, NAN, 1e-3,
      -1e-3, 40,   -40, 100, -100, 1e-30, 1e30, 0.999, 88.5,     -87.0,     7,   255};
  return values;
}

/// Pairs of special values.
std::vector<LocalTensor> special_operands(DType dtype) {
  const std::vector<double>& values = special_values();
  const auto size = static_cast<std::int64_t>(values.size());
  const LocalTensor one = tensor_from(values, {size}, DType::f64).to(dtype);
  return {one.view({size, 1}).expand({size, size}), one.expand({size, size}),
          one.view({size, 1}).expand({size, size})};
}

std::vector<std::vector<LocalTensor>> operand_sets(const MapSample& sample, DType dtype) {
  const auto of_shape = [&](const Shape& shape) {
    return std::vector<LocalTensor>{numbers(shape, dtype, 5), numbers(shape, dtype, 6),
                                    numbers(shape, dtype, 7)};
  };
  std::vector<std::vector<LocalTensor>> sets = {of_shape({1003}), of_shape({}), of_shape({0, 3}),
                                                of_shape({3})};
  for (const auto& [first, second] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 1}, {1, 1}, {2, 3}, {3, 3}, {5, 4}, {0, 4}, {6, 0}, {0, 6}}) {
    const std::vector<LocalTensor> a = layouts_of(dtype, 21), b = layouts_of(dtype, 51);
    sets.push_back({a[first], b[second], a[second]});
  }
  // Dims that are missing or 1.
  sets.push_back({numbers({3, 1, 5}, dtype, 1), numbers({2, 1}, dtype, 2), numbers({5}, dtype, 3)});
  if (is_floating_point(dtype)) sets.push_back(special_operands(dtype));
  for (std::vector<LocalTensor>& set : sets) {
    set.resize(static_cast<std::size_t>(sample.operands));
    const bool restricted = divides(sample.op) || &sample.op == &kPow;
    if (restricted && !is_floating_point(dtype)) set[1] = second_operand(sample.op, set[1]);
  }
  return sets;
}

std::string text_of(const MapSample& sample, DType dtype) {
  return std::string(sample.op.name) + " " + std::string(dtype_name(dtype));
}

}  // namespace

void expect_map_as_on_host(Device device) {
  std::set<MapFunction> shown;
  for (const MapSample& sample : kMapSamples) {
    shown.insert(sample.op.function);
    for (const DType dtype : kAllDTypes) {
      int number = 0;
      for (const std::vector<LocalTensor>& operands : operand_sets(sample, dtype)) {
        expect_call_as_on_host(sample, operands, device,
                               text_of(sample, dtype) + ", set " + std::to_string(number++));
      }
    }
  }
  EXPECT_EQ(shown.count(MapFunction::none), 0u);
  // where() is below.
  EXPECT_EQ(shown.size() + 1, static_cast<std::size_t>(MapFunction::pow)) << "some have no sample";
  for (const DType dtype : kAllDTypes) {
    const std::vector<LocalTensor> a = layouts_of(dtype, 3), b = layouts_of(dtype, 31);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const LocalTensor mask = layouts_of(DType::boolean, 9)[a.size() - 1 - i];
      expect_same(where(like(mask, device), like(a[i], device), like(b[i], device)),
                  where(mask, a[i], b[i]), device, "where");
      expect_same(where(like(mask, device), like(a[i], device), 3), where(mask, a[i], 3), device,
                  "where with a number");
      expect_same(where(like(mask, device), 2.5, like(a[i], device)), where(mask, 2.5, a[i]),
                  device, "where of a number");
    }
  }
}

void expect_mixed_map_as_on_host(Device device) {
  for (const MapSample& sample : kMapSamples) {
    if (sample.operands != 2) continue;
    for (const DType first : kAllDTypes) {
      const LocalTensor a = numbers({4, 6}, first, 3);
      for (const DType second : kAllDTypes) {
        const LocalTensor b = second_operand(sample.op, numbers({4, 6}, second, 4));
        const std::string what = text_of(sample, first) + " " + std::string(dtype_name(second));
        expect_call_as_on_host(sample, {a, b}, device, what);
        const LocalTensor number = second_operand(sample.op, numbers({}, second, 9));
        expect_call_as_on_host(sample, {a, number}, device, what + " without dims");
        const Outcome expected = outcome_of([&] { return call_of(sample, {a, number}); });
        const Outcome got = outcome_of([&] { return call_of(sample, {like(a, device), number}); });
        ASSERT_EQ(got.error, expected.error) << what;
        if (got.tensor) {
          expect_near(*got.tensor, *expected.tensor, device, sample.nearness, what + " of the cpu");
        }
      }
      for (const Scalar number : {Scalar(3), Scalar(-2), Scalar(0.7), Scalar(true)}) {
        const std::string what = text_of(sample, first) + " and a number";
        const Outcome expected = outcome_of([&] { return call_of(sample, {a, number}); });
        const Outcome got = outcome_of([&] { return call_of(sample, {like(a, device), number}); });
        ASSERT_EQ(got.error, expected.error) << what;
        if (got.tensor) {
          expect_near(*got.tensor, *expected.tensor, device, sample.nearness, what);
        }
      }
    }
  }
}

void expect_map_in_place_as_on_host(Device device) {
  for (const MapSample& sample : kMapSamples) {
    for (const DType dtype : kAllDTypes) {
      for (const DType other : {dtype, DType::f64, DType::i32, DType::boolean}) {
        const LocalTensor a = numbers({4, 6}, dtype, 3);
        const LocalTensor b = second_operand(sample.op, numbers({1, 6}, other, 4));
        const auto run = [&](const LocalTensor& target, const LocalTensor& second) {
          const LocalTensor cut = target.transpose(0, 1).slice(0, 1, 6, 2).transpose(0, 1);
          const LocalTensor cut_second = second.slice(1, 1, 6, 2);
          std::vector<Operand> operands = {cut, cut_second, cut_second};
          operands.erase(operands.begin() + sample.operands, operands.end());
          map_into(cut, sample.op, Operands(operands.data(), operands.size()), sample.numbers);
          return target;
        };
        const std::string what = text_of(sample, dtype) + "_ " + std::string(dtype_name(other));
        const LocalTensor remote = like(a, device), remote_second = like(b, device);
        const Outcome expected = outcome_of([&] { return run(a, b); });
        const Outcome got = outcome_of([&] { return run(remote, remote_second); });
        ASSERT_EQ(got.error, expected.error) << what;
        if (got.tensor) expect_near(remote, a, device, sample.nearness, what);
      }
    }
  }
  const LocalTensor host = arange(9), overlapping = arange(9).to(device);
  add_(host.slice(0, 1, 9), host.slice(0, 0, 8));
  add_(overlapping.slice(0, 1, 9), overlapping.slice(0, 0, 8));
  expect_same(overlapping, host, device, "overlap");
  const std::uint32_t writes = overlapping.storage()->version();
  add_(overlapping, 1);
  EXPECT_GT(overlapping.storage()->version(), writes);
}

namespace {

/// Only of what is on a device: the host walks over any number of dims.
void expect_many_dims_refused(Device device) {
  const auto error_of = [](const std::function<LocalTensor()>& run) {
    try {
      run();
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
      return error.summary() + ": " + error.why();
    }
    return std::string("no error");
  };
  const auto turned = [&](std::size_t dims) {
    std::vector<int> order;
    for (std::size_t d = dims; d-- > 0;) order.push_back(static_cast<int>(d));
    return ones(Shape(dims, 2), {DType::f32, device}).permute(order);
  };
  const std::string refused =
      "a strided CUDA tensor of shape [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, "
      "2]: kernels walk over at most 12 dims";
  const LocalTensor many = turned(13);
  const RandomBlock cut{Shape(13, 3), Shape(13, 1), Shape(13, 2)};
  for (const std::function<LocalTensor()>& run : std::vector<std::function<LocalTensor()>>{
           [&] { return add(many, 1); }, [&] { return many.contiguous(); },
           [&] { return many.fill_(2); },
           [&] {
             return rand_block(cut, {.seed = 1}, {DType::f32, device});
           }})
    EXPECT_TRUE(error_of(run).starts_with(refused)) << error_of(run);
  EXPECT_EQ(sum(add(turned(12), 1)).item(), 2 * 4096);
}

}  // namespace

void expect_map_errors_as_on_host(Device device) {
  expect_many_dims_refused(device);
  for (const auto& function : {floor_divide, trunc_divide, remainder, fmod}) {
    const LocalTensor a = arange(6, {DType::i32, device});
    for (const Operand& zero : {Operand(a), Operand(0)}) {
      try {
        function(a, zero);
        ADD_FAILURE() << "no error";
      } catch (const base::Error& error) {
        EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
        EXPECT_EQ(error.summary(), "integer division by zero");
      }
    }
    EXPECT_EQ(function(a, a + 1).device(), device);
    EXPECT_NO_THROW(function(a.to(DType::f32), a));
    EXPECT_NO_THROW(function(a.slice(0, 0, 0), 0));
  }
  const LocalTensor remote = ones({3}, {DType::f32, device});
  const MapOperator unknown{"unknown", Domain::all, MapFunction::none, kNeg.runs};
  EXPECT_NE(
      outcome_of([&] { return map(unknown, remote); }).error.find("unknown has no CUDA kernel yet"),
      std::string::npos);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { add(remote, ones({3})); }, [&] { add(ones({3}), remote); },
           [&] { add_(remote, ones({3})); }, [&] { add_(ones({3}), remote); },
           [&] { add_(ones({}), remote.select(0, 0)); },
           [&] { where(ones({3}, {DType::boolean}), remote, remote); }}) {
    const std::string error = outcome_of([&] { return call(), remote; }).error;
    EXPECT_NE(error.find("of tensors on"), std::string::npos) << error;
  }
}

}  // namespace dtrun::tensors
