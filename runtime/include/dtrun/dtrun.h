// The umbrella header for users: what a program of the job writes every day, as dtrun::X.
#pragma once

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/checkpoint/async_saver.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/series.h"
#include "dtrun/dtensor/data/data_loader.h"
#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/dtensor/layout/sharding_spec.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/move/strict_scope.h"
#include "dtrun/dtensor/move/trace.h"
#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/conv2d.h"
#include "dtrun/dtensor/nn/distribute_module.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/losses.h"
#include "dtrun/dtensor/nn/meta_scope.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/nn/multihead_attention.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/nn/rotary_embedding.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/convolution.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/local_map.h"
#include "dtrun/dtensor/ops/own_operator.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/dtensor/ops/visualize_sharding.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/check_finite.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/optim/grad_scaler.h"
#include "dtrun/dtensor/optim/lr_scheduler.h"
#include "dtrun/dtensor/optim/moving_average.h"
#include "dtrun/dtensor/optim/muon.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "dtrun/dtensor/parallel/context_parallel.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/explain_step.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "dtrun/dtensor/parallel/parallelize.h"
#include "dtrun/dtensor/parallel/pipeline.h"
#include "dtrun/dtensor/parallel/regions.h"
#include "dtrun/dtensor/parallel/zero_redundancy_optimizer.h"
#include "dtrun/dtensor/plan/layout_converter.h"
#include "dtrun/runtime/dist.h"
#include "dtrun/runtime/dist_coalesce.h"
#include "dtrun/runtime/dist_objects.h"
#include "dtrun/runtime/mp.h"
#include "dtrun/runtime/print.h"
#include "dtrun/runtime/simulate.h"
#include "dtrun/runtime/worker.h"

namespace dtrun {

using base::Deadline;
using base::Error;
using base::ErrorCode;

using tensors::Device;
using tensors::DeviceType;
using tensors::DType;
using tensors::kCpu;
using tensors::LocalTensor;
using tensors::promote_types;
using tensors::RandomKey;
using tensors::Scalar;
using tensors::Shape;
using tensors::TensorOptions;

using collectives::CallOptions;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using collectives::Work;

// All that is done with tensors stands there.
using namespace dtensor;

/// torch.distributed.checkpoint; as dcp::save(), too.
namespace dist {
namespace checkpoint = dtensor::dcp;
}

using runtime::init;
using runtime::InitOptions;
using runtime::print;
using runtime::simulate;
using runtime::SimulateOptions;
using runtime::Worker;

}  // namespace dtrun
