// The fused operations over rows, and convolutions (DeviceFamilies).
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/convolution.h"
#include "tensor/device_comparison.h"
#include "tensor/device_families.h"

namespace dtrun::tensors {
namespace {

constexpr DType kFloatings[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

LocalTensor row_numbers(const Shape& shape, DType dtype, std::uint64_t seed) {
  return (randn(shape, {seed, 3}, {.dtype = DType::f64}) * 3.0).to(dtype);
}

std::string described(const std::string& name, const LocalTensor& a) {
  return name + " " + std::string(dtype_name(a.dtype())) + shape_to_string(a.shape());
}

void compare_softmax(const LocalTensor& host, int dim, Device device) {
  const LocalTensor remote = like(host, device);
  const LocalTensor grad = row_numbers(host.shape(), DType::f32, 8);
  const LocalTensor plain = softmax(host, dim), log = log_softmax(host, dim);
  expect_close(softmax(remote, dim), plain, device, described("softmax", host));
  expect_close(log_softmax(remote, dim), log, device, described("log_softmax", host));
  expect_close(softmax_backward(grad.to(device), plain.to(device), dim),
               softmax_backward(grad, plain, dim), device, described("softmax backward", host));
  expect_close(log_softmax_backward(grad.to(device), log.to(device), dim),
               log_softmax_backward(grad, log, dim), device,
               described("log_softmax backward", host));
}

NormOptions on(const NormOptions& options, Device device) {
  NormOptions moved = options;
  if (options.weight) moved.weight = options.weight->to(device);
  if (options.bias) moved.bias = options.bias->to(device);
  return moved;
}

void expect_close_if_there(const LocalTensor& got, const LocalTensor& expected, Device device,
                           const std::string& what) {
  ASSERT_EQ(got.defined(), expected.defined()) << what;
  if (expected.defined()) expect_close(got, expected, device, what);
}

void compare_gradients(const NormGradients& got, const NormGradients& expected, Device device,
                       const std::string& what) {
  expect_close(got.a, expected.a, device, what + " backward");
  expect_close_if_there(got.weight, expected.weight, device, what + " of weight");
  expect_close_if_there(got.bias, expected.bias, device, what + " of bias");
}

void compare_layer_norm(const LocalTensor& host, const NormOptions& options, Device device) {
  const std::string what = described("layer_norm", host);
  const LocalTensor remote = like(host, device);
  const NormOptions there = on(options, device);
  const Normalized expected = layer_norm(host, options), got = layer_norm(remote, there);
  expect_close(got.output, expected.output, device, what);
  expect_close(got.mean, expected.mean, device, what + " mean");
  expect_close(got.inverse_deviation, expected.inverse_deviation, device, what + " deviation");
  const LocalTensor grad = row_numbers(host.shape(), host.dtype(), 5), far = grad.to(device);
  compare_gradients(layer_norm_backward(far, remote, got, there),
                    layer_norm_backward(grad, host, expected, options), device, what);
  compare_gradients(layer_norm_backward(far, remote, there),
                    layer_norm_backward(grad, host, options), device, what + " again");
}

void compare_rms_norm(const LocalTensor& host, const NormOptions& options, Device device) {
  const std::string what = described("rms_norm", host);
  const LocalTensor remote = like(host, device);
  const NormOptions there = on(options, device);
  const Normalized expected = rms_norm(host, options), got = rms_norm(remote, there);
  expect_close(got.output, expected.output, device, what);
  EXPECT_FALSE(got.mean.defined());
  expect_close(got.inverse_deviation, expected.inverse_deviation, device, what + " deviation");
  const LocalTensor grad = row_numbers(host.shape(), host.dtype(), 5), far = grad.to(device);
  compare_gradients(rms_norm_backward(far, remote, got, there),
                    rms_norm_backward(grad, host, expected, options), device, what);
  compare_gradients(rms_norm_backward(far, remote, there), rms_norm_backward(grad, host, options),
                    device, what + " again");
}

void compare_norms(const LocalTensor& host, Device device) {
  const Shape last = {host.size(-1)};
  const LocalTensor weight = row_numbers(last, host.dtype(), 1);
  const LocalTensor bias = row_numbers(last, host.dtype(), 2);
  compare_layer_norm(host, {}, device);
  compare_layer_norm(host, {.weight = weight}, device);
  compare_layer_norm(host, {.weight = {}, .bias = bias}, device);
  compare_layer_norm(host, {.weight = weight, .bias = bias, .eps = 1e-3}, device);
  compare_layer_norm(host, {.dims = 2}, device);
  compare_rms_norm(host, {}, device);
  compare_rms_norm(host, {.weight = weight}, device);
}

/// Rows of infinities, nans and numbers whose exponentials are beyond any type.
LocalTensor odd_rows() {
  const double infinity = std::numeric_limits<double>::infinity();
  return tensor_from(
      std::vector<double>{-infinity, 1, 2, -infinity, -infinity, -infinity, infinity, 1, 0,
                          std::numeric_limits<double>::quiet_NaN(), 1, 2, 900, 0, -900},
      {5, 3}, DType::f32);
}

void compare_odd_classes(Device device) {
  const LocalTensor odd = odd_rows(), far = odd.to(device);
  const LocalTensor grad = full({5}, 2, {DType::f32});
  for (const std::int64_t right : {0, 2}) {
    const LocalTensor target = full({5}, right, {DType::i64});
    const CrossEntropy expected = cross_entropy_rows(odd, target);
    const CrossEntropy got = cross_entropy_rows(far, target.to(device));
    expect_close(got.loss, expected.loss, device, "odd cross_entropy");
    expect_close(got.logsumexp, expected.logsumexp, device, "odd cross_entropy logsumexp");
    expect_close(
        cross_entropy_rows_backward(grad.to(device), far, target.to(device), got.logsumexp),
        cross_entropy_rows_backward(grad, odd, target, expected.logsumexp), device,
        "odd cross_entropy backward");
  }
}

}  // namespace

void expect_rows_as_on_host(Device device) {
  for (const DType dtype : kFloatings) {
    for (const LocalTensor& host : layouts_of(dtype, 4)) {
      compare_softmax(host, 0, device);
      compare_softmax(host, -1, device);
      compare_norms(host, device);
    }
    compare_softmax(row_numbers({}, dtype, 1), 0, device);
    compare_softmax(row_numbers({0, 4}, dtype, 1), 0, device);
    compare_softmax(row_numbers({3, 5, 7}, dtype, 1), 1, device);
    compare_softmax(row_numbers({1, 5000}, dtype, 1), 1, device);
    compare_softmax(row_numbers({2500, 3}, dtype, 1), 0, device);
    compare_softmax(row_numbers({70, 40}, dtype, 1).transpose(0, 1), -1, device);
    compare_norms(row_numbers({1, 3000}, dtype, 1), device);
    compare_norms(row_numbers({700, 33}, dtype, 1), device);
    compare_norms(row_numbers({3, 2, 50}, dtype, 1).transpose(0, 2), device);
    compare_norms(row_numbers({0, 4}, dtype, 1), device);
    // The same bits for every layout.
    const LocalTensor rows = row_numbers({9, 300}, dtype, 2).to(device);
    const LocalTensor turned = rows.transpose(0, 1).clone().transpose(0, 1);
    expect_same(softmax(turned, 1), softmax(rows, 1).to(kCpu), device, "a layout's softmax");
    expect_same(layer_norm(turned, {}).output, layer_norm(rows, {}).output.to(kCpu), device,
                "a layout's norm");
  }
  const LocalTensor odd = odd_rows();
  expect_close(softmax(odd.to(device), 1), softmax(odd, 1), device, "odd softmax");
  expect_close(log_softmax(odd.to(device), 1), log_softmax(odd, 1), device, "odd log_softmax");
}

void expect_class_rows_as_on_host(Device device) {
  compare_odd_classes(device);
  for (const DType dtype : kFloatings) {
    for (const Shape& shape : {Shape{5, 7}, Shape{1, 3000}, Shape{40, 1}, Shape{0, 3}}) {
      const LocalTensor logits = row_numbers(shape, dtype, 6);
      const LocalTensor classes = arange(shape[0]);
      const std::int64_t count = shape[1];
      std::vector<std::int64_t> chosen = classes.to_vector_i64();
      for (std::size_t row = 0; row < chosen.size(); ++row) {
        chosen[row] = row % 4 == 3 ? -100 : chosen[row] * 3 % count;
      }
      const LocalTensor target = tensor_from(chosen, {shape[0]}, DType::i64);
      const LocalTensor grad = row_numbers({shape[0]}, DType::f32, 7);
      const LocalTensor far = logits.to(device), far_target = target.to(device);
      const CrossEntropy expected = cross_entropy_rows(logits, target);
      const CrossEntropy got = cross_entropy_rows(far, far_target);
      const std::string what = described("cross_entropy", logits);
      expect_close(got.loss, expected.loss, device, what);
      expect_close(got.logsumexp, expected.logsumexp, device, what + " logsumexp");
      expect_close(cross_entropy_rows_backward(grad.to(device), far, far_target, got.logsumexp),
                   cross_entropy_rows_backward(grad, logits, target, expected.logsumexp), device,
                   what + " backward");
      const ClassCut cut{2, count + 4};
      expect_close(
          cross_entropy_rows_backward(grad.to(device), far, far_target, got.logsumexp, -100, cut),
          cross_entropy_rows_backward(grad, logits, target, expected.logsumexp, -100, cut), device,
          what + " of a cut");
    }
  }
  const LocalTensor wrong = tensor_from(std::vector<double>{0, 2, 3, -1}, {4}, DType::i64);
  const LocalTensor logits = row_numbers({4, 3}, DType::f32, 6);
  try {
    cross_entropy_rows(logits.to(device), wrong.to(device));
    ADD_FAILURE() << "no error";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.summary(), "cross_entropy: row 2 has class 3");
  }
  // The device works on.
  EXPECT_EQ(sum(ones({3}, {DType::f32, device})).item(), 3);
}

void expect_convolutions_as_on_host(Device device) {
  struct Case {
    Shape input, weight;
    ConvOptions options;
  };
  const std::vector<Case> cases = {
      {{2, 3, 7, 6}, {4, 3, 3, 2}, {}},
      {{1, 4, 5, 5}, {6, 2, 3, 3}, {.stride = 2, .padding = 1, .groups = 2}},
      {{3, 2, 9, 8},
       {2, 1, 2, 3},
       {.stride = {3, 1}, .padding = {0, 2}, .dilation = {2, 1}, .groups = 2}},
      {{2, 3, 4, 4}, {5, 3, 1, 1}, {}},
      {{2, 3, 4, 4}, {5, 3, 1, 1}, {.stride = 2}},
      {{0, 3, 4, 4}, {5, 3, 2, 2}, {}}};
  for (const DType dtype : kFloatings) {
    for (const Case& each : cases) {
      const LocalTensor input = row_numbers(each.input, dtype, 1);
      const LocalTensor weight = row_numbers(each.weight, dtype, 2);
      const std::string what = described("conv2d", input) + shape_to_string(each.weight);
      const LocalTensor output = conv2d(input, weight, each.options);
      const LocalTensor grad = row_numbers(output.shape(), dtype, 3);
      const LocalTensor far = like(input, device), windows = like(weight, device);
      const LocalTensor turned = windows.transpose(0, 1).clone().transpose(0, 1);
      const LocalTensor back = grad.to(device);
      expect_close(conv2d(far, turned, each.options), output, device, what);
      const HeightWidth size(each.input[2], each.input[3]);
      expect_close(conv2d_input_gradient(back, windows, size, each.options),
                   conv2d_input_gradient(grad, weight, size, each.options), device,
                   what + " of input");
      const HeightWidth window(each.weight[2], each.weight[3]);
      expect_close(conv2d_weight_gradient(back, far, window, each.options),
                   conv2d_weight_gradient(grad, input, window, each.options), device,
                   what + " of weight");
    }
  }
}

}  // namespace dtrun::tensors
