// DT_CUDA(expression): runs a CUDA runtime call and throws its failure as an Error.
#pragma once

#include <cuda_runtime_api.h>

namespace dtrun::tensors::cuda {

/// @param action what was tried, for the message: the call's own text
/// @throws Error kUnavailable where there is no driver or no such device, else kSystem
void check(cudaError_t status, const char* action);

}  // namespace dtrun::tensors::cuda

#define DT_CUDA(expression) ::dtrun::tensors::cuda::check((expression), #expression)
