// PyTorch's results of operations, compared with ours: dtypes of the results, and every element.
#pragma once

#include <string>

#include "tensor/golden_file.h"

namespace dtrun::tensors {

/// Empty when the operation gives on that device what PyTorch gives, or refuses what it refuses.
std::string golden_outcome(const GoldenCase& golden, Device device);
/// All of them, as gtest's expectations.
void expect_golden_operations(Device device);

}  // namespace dtrun::tensors
