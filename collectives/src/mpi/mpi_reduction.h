// What MPI's reductions call for each two elements: dtrun's own kernels, so that f16, NaN, bool and
// the wrapping of integers mean the same over every backend.
#pragma once

#include "dtrun/tensor/reduce_kernel.h"
#include "mpi/mpi_process.h"

namespace dtrun::collectives::mpi {

/// Made at its first use, and kept as long as MPI lives. Thread-safe.
MPI_Op reduction(const MpiProcess& process, tensors::CombineOp op, tensors::DType dtype);
/// Items of the dtype's size, whatever they mean.
MPI_Datatype item_type(const MpiApi& api, tensors::DType dtype);

}  // namespace dtrun::collectives::mpi
