// How tensors' types, reductions and failures are said to NCCL, and by it.
#pragma once

#include <string_view>

#include "dtrun/base/error.h"
#include "dtrun/collectives/backend.h"
#include "nccl/nccl_api.h"

namespace dtrun::collectives::nccl {

/// bool travels as bytes.
DataType data_type(tensors::DType dtype);
/// bool has bytes 0 and 1: "or" is their maximum, "and" their minimum. A premul_sum is a sum of
/// what the call makes it of. @throws Error kUnavailable for what NCCL cannot do: bits of integers
Reduction reduction(ReduceOp op, tensors::DType dtype);

/// @throws Error unless the call succeeded or is in progress; several ranks on one GPU, which NCCL
/// calls an invalid usage, are answered with the remedy. @return the result
Result check(NcclApi& api, Result result, std::string_view action,
             Communicator communicator = nullptr);
base::Error failure_of(NcclApi& api, Result result, std::string_view action,
                       Communicator communicator = nullptr);

}  // namespace dtrun::collectives::nccl
