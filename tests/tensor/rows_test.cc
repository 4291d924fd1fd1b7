// What the goldens do not show of fused operations over rows: bits, layouts, errors.
#include "dtrun/tensor/ops/rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "dtrun/base/error.h"
#include "dtrun/tensor/host_memory.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/convolution.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::tensors {
namespace {

bool have_same_bits(const LocalTensor& a, const LocalTensor& b) {
  const LocalTensor left = a.contiguous();
  const LocalTensor right = b.contiguous();
  return left.dtype() == right.dtype() && left.shape() == right.shape() &&
         std::memcmp(left.data(), right.data(), left.bytes()) == 0;
}

using RowFunction = std::function<std::vector<LocalTensor>(const LocalTensor&)>;

/// Over the last of two dims.
std::vector<RowFunction> row_functions(std::int64_t length) {
  const NormOptions options{.weight = randn({length}, {.seed = 2}),
                            .bias = randn({length}, {.seed = 3})};
  return {[](const LocalTensor& x) {
            const LocalTensor y = softmax(x, 1);
            return std::vector<LocalTensor>{y, softmax_backward(x, y, 1)};
          },
          [](const LocalTensor& x) {
            const LocalTensor y = log_softmax(x, -1);
            return std::vector<LocalTensor>{y, log_softmax_backward(x, y, -1)};
          },
          [options](const LocalTensor& x) {
            const Normalized y = layer_norm(x, options);
            const NormGradients grads = layer_norm_backward(x, x, y, options);
            return std::vector<LocalTensor>{y.output, y.mean, grads.a, grads.weight, grads.bias};
          },
          [options](const LocalTensor& x) {
            const Normalized y = rms_norm(x, {.weight = options.weight});
            const NormGradients grads = rms_norm_backward(x, x, y, {.weight = options.weight});
            return std::vector<LocalTensor>{y.output, grads.a, grads.weight};
          },
          [](const LocalTensor& x) {
            const LocalTensor classes = remainder(arange(x.size(0)), x.size(1));
            const CrossEntropy y = cross_entropy_rows(x, classes);
            return std::vector<LocalTensor>{
                y.loss, cross_entropy_rows_backward(y.loss, x, classes, y.logsumexp)};
          }};
}

void expect_equal_bits(const std::vector<LocalTensor>& got,
                       const std::vector<LocalTensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t k = 0; k < got.size(); ++k)
    EXPECT_TRUE(have_same_bits(got[k], expected[k])) << k;
}

class RowsTest : public ::testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

/// A nan has bits of its own, which shifts and sums make a number of.
TEST_F(RowsTest, ANanOfAnyBitsMakesItsRowNan) {
  for (const std::uint32_t bits : {0x7fc00000U, 0x7fc00001U, 0xffffffffU, 0x7f800001U}) {
    const LocalTensor x = randn({3, 67}, {.seed = 5});
    std::memcpy(x.data_as<float>() + 67 + 40, &bits, sizeof bits);
    for (const LocalTensor& rows : {softmax(x, 1), log_softmax(x, 1), exp(x).slice(1, 40, 41)}) {
      const LocalTensor nans = sum(isnan(rows).to(DType::i64), std::vector<int>{1});
      EXPECT_EQ(nans.select(0, 0).item(), 0) << bits;
      EXPECT_EQ(nans.select(0, 1).item(), static_cast<double>(rows.size(1))) << bits;
    }
  }
}

TEST_F(RowsTest, BitsDependNeitherOnThreadsNorOnTheLayout) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const LocalTensor x = randn({523, 301}, {.seed = 4}).to(dtype);
    const LocalTensor turned = x.transpose(0, 1).clone().transpose(0, 1);
    const LocalTensor spread = empty({523, 903}, {dtype}).slice(1, 0, 903, 3).copy_(x);
    for (const RowFunction& function : row_functions(301)) {
      set_num_threads(1);
      const std::vector<LocalTensor> expected = function(x);
      expect_equal_bits(function(turned), expected);
      expect_equal_bits(function(spread), expected);
      for (const int threads : {2, 4}) {
        set_num_threads(threads);
        expect_equal_bits(function(x), expected);
      }
    }
  }
}

/// Over the last of three dims.
std::vector<LocalTensor> functions_of_three_dims(const LocalTensor& x, const LocalTensor& grad) {
  const LocalTensor y = softmax(x, 2), logs = log_softmax(x, -1);
  const NormOptions options{.weight = randn({x.size(2)}, {.seed = 2})};
  const Normalized normed = layer_norm(x, options);
  return {y,
          logs,
          normed.output,
          normed.mean,
          rms_norm(x, options).output,
          logsumexp(x, {2}),
          sum(x, {2}),
          softmax_backward(grad, x, 2),
          log_softmax_backward(x, grad, 2),
          layer_norm_backward(grad, x, normed, options).a,
          rms_norm_backward(grad, x, options).a};
}

// Where an operand's lines follow each other for a while only, or have gaps between them, beside
// others that are dense or turned.
TEST_F(RowsTest, BitsDoNotDependOnWhetherLinesFollowEachOther) {
  // Of long rows a task begins amid five lines that follow each other.
  set_num_threads(4);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::int64_t length : {1, 5, 16, 40, 130, 500}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " rows of " << length);
      const LocalTensor whole = randn({90, 9, length + 3}, {.seed = 4}).to(dtype);
      const LocalTensor steps = whole.slice(2, 0, length);
      const LocalTensor breaks = steps.contiguous().slice(1, 2, 7);
      const LocalTensor grad = randn({90, 5, length}, {.seed = 5}).to(dtype);
      const LocalTensor turned = grad.permute({2, 1, 0}).clone().permute({2, 1, 0});
      const LocalTensor grad_breaks = cat({grad, grad}, 1).slice(1, 0, 5);
      for (const LocalTensor& x : {breaks, steps.slice(1, 2, 7)}) {
        const auto expected = functions_of_three_dims(x.contiguous(), grad);
        expect_equal_bits(functions_of_three_dims(x, grad), expected);
        expect_equal_bits(functions_of_three_dims(x, turned), expected);
        expect_equal_bits(functions_of_three_dims(x, grad_breaks), expected);
        expect_equal_bits(functions_of_three_dims(x.contiguous(), grad_breaks), expected);
      }
      const LocalTensor classes = remainder(arange(90), length), logits = steps.select(1, 3);
      const CrossEntropy dense = cross_entropy_rows(logits.contiguous(), classes);
      const CrossEntropy found = cross_entropy_rows(logits, classes);
      expect_equal_bits({found.loss, found.logsumexp}, {dense.loss, dense.logsumexp});
    }
  }
}

// Short rows are brought and folded many at once.
TEST_F(RowsTest, ARowsBitsDoNotDependOnHowManyThereAre) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::int64_t length : {1, 15, 16, 17, 63, 64, 65, 200, 1024, 1030}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " rows of " << length);
      const LocalTensor x = randn({70, length}, {.seed = 1}).to(dtype);
      const NormOptions options{.weight = randn({length}, {.seed = 2})};
      const std::function<LocalTensor(const LocalTensor&)> functions[] = {
          [](const LocalTensor& a) { return softmax(a, 1); },
          [](const LocalTensor& a) { return log_softmax(a, 1); },
          [&](const LocalTensor& a) { return layer_norm(a, options).output; },
          [&](const LocalTensor& a) { return rms_norm(a, options).output; },
          [](const LocalTensor& a) {
            return cross_entropy_rows(a, zeros({a.size(0)}, {DType::i64})).loss;
          },
          [](const LocalTensor& a) { return cumsum(a, 1); },
          [](const LocalTensor& a) { return sum(a, {1}); },
          [](const LocalTensor& a) { return amax(a, {1}); },
          [](const LocalTensor& a) { return var(a, {1}); },
          [](const LocalTensor& a) { return logsumexp(a, {1}); }};
      for (const auto& function : functions) {
        const LocalTensor all = function(x);
        for (const std::int64_t row : {0, 3, 33, 69})
          EXPECT_TRUE(have_same_bits(all.narrow(0, row, 1), function(x.narrow(0, row, 1))));
      }
    }
  }
}

TEST_F(RowsTest, BitsOfConvolutionsDoNotDependOnThreads) {
  const LocalTensor x = randn({37, 4, 19, 23}, {.seed = 1}), w = randn({6, 2, 3, 3}, {.seed = 2});
  const ConvOptions options{.stride = {2, 1}, .padding = 1, .groups = 2};
  const auto run = [&] {
    const LocalTensor y = conv2d(x, w, options);
    return std::vector<LocalTensor>{y, conv2d_input_gradient(y, w, {19, 23}, options),
                                    conv2d_weight_gradient(y, x, {3, 3}, options)};
  };
  set_num_threads(1);
  const std::vector<LocalTensor> expected = run();
  for (const int threads : {2, 4}) {
    set_num_threads(threads);
    expect_equal_bits(run(), expected);
  }
}

TEST_F(RowsTest, GradientsOfConvolutionsOfHalvesWidenASampleAtATime) {
  const ConvOptions options{.stride = {2, 1}, .padding = 1, .groups = 2};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t side : {1, 3}) {
      const ConvOptions form = side == 1 ? ConvOptions{} : options;
      const LocalTensor x = randn({37, 4, 39, 43}, {.seed = 1}).to(dtype);
      const LocalTensor w = randn({6, side == 1 ? 4 : 2, side, side}, {.seed = 2}).to(dtype);
      const LocalTensor y = conv2d(x, w, form);
      const LocalTensor wide_y = y.to(DType::f32), wide_x = x.to(DType::f32);
      set_num_threads(2);
      const HostMemoryMeter meter;
      const LocalTensor of_x = conv2d_input_gradient(y, w, {39, 43}, form);
      const LocalTensor of_w = conv2d_weight_gradient(y, x, {side, side}, form);
      ASSERT_TRUE(!meter.counts() || meter.peak() - meter.now() < x.numel());
      expect_equal_bits({of_x, of_w},
                        {conv2d_input_gradient(wide_y, w.to(DType::f32), {39, 43}, form).to(dtype),
                         conv2d_weight_gradient(wide_y, wide_x, {side, side}, form).to(dtype)});
    }
  }
}

TEST_F(RowsTest, WhatDoesNotFitIsNamed) {
  const auto summary = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const base::Error& error) {
      return error.summary();
    }
    return "no error";
  };
  const LocalTensor x = ones({2, 3});
  EXPECT_EQ(summary([&] { softmax(tensor({1, 2}), 0); }), "softmax does not take int64 tensors");
  EXPECT_EQ(summary([&] { softmax_backward(ones({2}), x, 0); }),
            "softmax_backward of float32 [2] and float32 [2, 3]");
  EXPECT_EQ(summary([&] { layer_norm(x, {.dims = 3}); }),
            "layer_norm of shape [2, 3] over its last 3 dims");
  EXPECT_EQ(summary([&] { layer_norm(x, {.weight = ones({2})}); }),
            "layer_norm of shape [2, 3] with a weight or bias of shape [2]");
  EXPECT_EQ(summary([&] {
              cross_entropy_rows(x, tensor({0, 3}));
            }),
            "cross_entropy: row 1 has class 3");
  EXPECT_EQ(summary([&] { cross_entropy_rows(x, tensor({0})); }),
            "cross_entropy of float32 [2, 3] and classes int64 [1]");
}

}  // namespace
}  // namespace dtrun::tensors
