#include "dtensor/operator_devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/creation.h"

namespace dtrun::dtensor {
namespace {

constexpr tensors::Device kGpu{tensors::DeviceType::cuda, 0};

/// The result, and behind it the gradients of the inputs.
Tensors results_on(tensors::Device device, const OperatorSample& sample, bool with_gradients) {
  Tensors inputs, leaves;
  for (const Tensor& input : sample.inputs) {
    inputs.push_back(input.detach().to(device));
    if (!with_gradients || input.dtype() != DType::f64) continue;
    inputs.back().requires_grad_();
    leaves.push_back(inputs.back());
  }
  Tensors results = {sample.run(inputs)};
  if (!with_gradients || !results[0].requires_grad()) return results;
  const Tensor weights = randn(results[0].shape(), {77}, {.dtype = DType::f64});
  const Tensors gradients = grad(results, leaves, {weights.to(results[0].dtype()).to(device)}, {});
  results.insert(results.end(), gradients.begin(), gradients.end());
  return results;
}

std::vector<double> numbers_of(const Tensor& tensor) {
  const tensors::LocalTensor local = tensor.detach();
  return local.to_vector();
}

void expect_alike(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_TRUE(got.shape() == expected.shape() && got.dtype() == expected.dtype()) << what;
  EXPECT_EQ(got.device(), kGpu) << what;
  const std::vector<double> left = numbers_of(got), right = numbers_of(expected);
  double scale = 1;
  for (const double x : right) scale = std::isfinite(x) ? std::max(scale, std::fabs(x)) : scale;
  const double tolerance = expected.dtype() == DType::f64 ? 1e-12 : 1e-5;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    EXPECT_LE(std::fabs(left[i] - right[i]), tolerance * scale) << what << ", element " << i;
  }
}

/// Whether it runs on the device.
bool runs_on_device(const OperatorSample& sample, bool with_gradients) {
  const Tensors expected = results_on(tensors::kCpu, sample, with_gradients);
  try {
    const Tensors got = results_on(kGpu, sample, with_gradients);
    EXPECT_EQ(got.size(), expected.size()) << sample.name;
    for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
      if (!expected[i].defined()) continue;
      expect_alike(got[i], expected[i],
                   sample.name + (i == 0 ? "" : ", gradient " + std::to_string(i - 1)));
    }
    return true;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kUnavailable) << sample.name << ": " << error.what();
    EXPECT_NE(error.summary().find(" has no CUDA kernel yet"), std::string::npos)
        << sample.name << ": " << error.what();
    EXPECT_FALSE(error.remedy().empty()) << sample.name;
    return false;
  }
}

}  // namespace

std::string devices_of(const OperatorSample& sample) {
  if (!runs_on_device(sample, false)) return "cpu";
  return runs_on_device(sample, true) ? "cpu, cuda" : "cpu, cuda without gradient";
}

}  // namespace dtrun::dtensor
