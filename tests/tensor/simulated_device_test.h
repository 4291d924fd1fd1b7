// SimulatedDeviceTest: a test whose CUDA devices are simulated; their kernels run on the host.
#pragma once

#include <gtest/gtest.h>

#include "cuda/context.h"
#include "dtrun/tensor/cuda.h"
#include "tensor/simulated_cuda.h"

namespace dtrun::tensors {

class SimulatedDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  }
  cuda::SimulatedCuda simulation_;
  cuda::CudaContext context_{cuda::SimulatedCuda::api(), cuda::SimulatedCuda::blas()};
  cuda::ContextGuard guard_{context_};
};

}  // namespace dtrun::tensors
