// The umbrella header for users: what a program of the job writes every day, as dtrun::X.
#pragma once

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/device_mesh.h"
#include "dtrun/dtensor/dtensor.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/dtensor/placement.h"
#include "dtrun/runtime/dist.h"
#include "dtrun/runtime/mp.h"
#include "dtrun/runtime/print.h"
#include "dtrun/runtime/worker.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun {

using base::Deadline;
using base::Error;
using base::ErrorCode;

using namespace tensors;
using Tensor = tensors::LocalTensor;

using collectives::CallOptions;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using collectives::Work;

using dtensor::DeviceMesh;
using dtensor::distribute_tensor;
using dtensor::DTensor;
using dtensor::Partial;
using dtensor::Placement;
using dtensor::Placements;
using dtensor::Replicate;
using dtensor::Shard;

using runtime::init;
using runtime::InitOptions;
using runtime::print;
using runtime::Worker;

}  // namespace dtrun
