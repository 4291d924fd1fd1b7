// Where an operator of the public headers runs: found by calling it with tensors of a simulated
// CUDA device.
#pragma once

#include <string>

#include "dtensor/operator_samples.h"

namespace dtrun::dtensor {

/// "cpu, cuda"; "cpu, cuda without gradient"; "cpu", where CUDA tensors are refused by name. What
/// is wrong there (another result than on the CPU, another error) is a failure of the test.
/// @param sample runs in a build with CUDA, while SimulatedDevices live
std::string devices_of(const OperatorSample& sample);

}  // namespace dtrun::dtensor
