#include <gtest/gtest.h>

#include "tensor/golden_operations.h"

namespace dtrun::tensors {
namespace {

TEST(GoldenOpsTest, EveryGoldenOperationGivesPyTorchsResult) {
  expect_golden_operations(kCpu);
}

}  // namespace
}  // namespace dtrun::tensors
