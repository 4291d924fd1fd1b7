#include <gtest/gtest.h>

#include <sstream>

#include "cuda/context.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "tensor/golden_file.h"
#include "tensor/simulated_cuda.h"

namespace dtrun::tensors {
namespace {

TEST(PrintingTest, EveryGoldenTensorPrintsAsPyTorchPrintsIt) {
  const std::vector<GoldenCase> cases = read_golden_file("tensor_prints");
  ASSERT_GE(cases.size(), 600u);
  int wrong = 0;
  for (const GoldenCase& golden : cases) {
    const LocalTensor tensor = golden_tensor(golden);
    const std::string text(golden.at("text").as_string());
    EXPECT_EQ(tensor.to_string(), text);
    wrong += tensor.to_string() != text;
    ASSERT_LT(wrong, 5) << "and more";
  }
}

TEST(PrintingTest, EveryGoldenTensorPrintsAsPyTorchPrintsItOnADevice) {
  cuda::SimulatedCuda simulation({.devices = 13});
  cuda::CudaContext context(cuda::SimulatedCuda::api(), cuda::SimulatedCuda::blas());
  const cuda::ContextGuard guard(context);
  int wrong = 0;
  for (const GoldenCase& golden : read_golden_file("tensor_prints")) {
    const Device device = Device::parse(std::string(golden.at("device").as_string()));
    const std::string text(golden.at("device_text").as_string());
    const std::string got = golden_tensor(golden).contiguous().to(device).to_string();
    EXPECT_EQ(got, text);
    wrong += got != text;
    ASSERT_LT(wrong, 5) << "and more";
  }
}

TEST(PrintingTest, SimpleTensorsReadAsInTheDocuments) {
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}).to_string(), "tensor([[1, 2],\n        [3, 4]])");
  EXPECT_EQ(tensor(3.5).to_string(), "tensor(3.5000)");
  EXPECT_EQ(ones({2}, {DType::f64}).to_string(), "tensor([1., 1.], dtype=torch.float64)");
  std::ostringstream stream;
  stream << tensor({true, false});
  EXPECT_EQ(stream.str(), "tensor([ True, False])");
}

TEST(PrintingTest, ATensorOnADeviceSaysSo) {
  const Device device{DeviceType::cuda, 1};
  const LocalTensor nothing(Storage::wrap(nullptr, 0, device, {}), DType::f16, {0, 3}, {3, 1});
  EXPECT_EQ(nothing.to_string(), "tensor([], device='cuda:1', size=(0, 3), dtype=torch.float16)");
}

}  // namespace
}  // namespace dtrun::tensors
