#include "dtrun/dtensor/parallel/data_parallel.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/nn/meta_scope.h"
#include "move/told_calls.h"
#include "nn/model_agreement.h"
#include "parallel/gradient_buckets.h"
#include "parallel/one_axis.h"
#include "parallel/part_hooks.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// The first rank's numbers; all of them travel at once.
void broadcast(const Tensors& tensors, const ProcessGroup& group, const Tensor::Site& site) {
  std::vector<collectives::Work> works;
  const ToldCalls told("data_parallel", site);
  for (const Tensor& tensor : tensors)
    works.push_back(group.broadcast(tensor.local(), 0, {.async = true}, site));
  for (const collectives::Work& work : works) work.wait();
}

nn::Module::NamedTensors trained(const nn::Module& module) {
  nn::Module::NamedTensors parameters;
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (parameter.requires_grad()) parameters.emplace_back(name, parameter);
  }
  if (!parameters.empty()) return parameters;
  throw Error(ErrorCode::kInvalidArgument,
              "data_parallel of " + module.name() + ", of which no parameter wants a gradient",
              "there is nothing that ranks would have to agree about",
              "use the module as it is, or requires_grad_() before");
}

void check_sizes(const DataParallelOptions& options) {
  if (options.bucket_bytes.value_or(1) > 0 && options.first_bucket_bytes > 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              "data_parallel with buckets of " + std::to_string(options.first_bucket_bytes) +
                  " and " + std::to_string(options.bucket_bytes.value_or(1)) + " bytes",
              "", "sizes from 1");
}

std::int64_t bucket_bytes_for(const nn::Module::NamedTensors& parameters) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  std::int64_t bytes = 0;
  for (const auto& [name, parameter] : parameters) {
    const LocalTensor& local = parameter.local();
    bytes += local.numel() * static_cast<std::int64_t>(tensors::item_size(local.dtype()));
  }
  return std::clamp(bytes / 8, kMebibyte, 25 * kMebibyte);
}

}  // namespace

DataParallel::NoSync::NoSync(std::shared_ptr<GradientBuckets> buckets)
    : buckets_(std::move(buckets)) {
  buckets_->pause();
}
DataParallel::NoSync::~NoSync() {
  buckets_->go_on();
}

DataParallel data_parallel(nn::Module& module, const DeviceMesh& mesh, DataParallelOptions options,
                           Tensor::Site site) {
  const ProcessGroup& group = group_of_one_axis("data_parallel", mesh);
  check_sizes(options);
  // First: what follows refuses on all ranks, or on none.
  check_same_model("data_parallel", module, group, site);
  check_free_of("data_parallel", module, group);
  auto parameters = trained(module);
  nn::materialize(module);
  Tensors all = module.parameters();
  for (const Tensor& buffer : module.buffers()) all.push_back(buffer);
  broadcast(all, group, site);

  const bool broadcasts = options.broadcast_buffers && !module.buffers().empty();
  if (!options.comm_hook) options.comm_hook = all_reduce_hook();
  if (!options.bucket_bytes) options.bucket_bytes = bucket_bytes_for(parameters);
  const auto buckets =
      std::make_shared<GradientBuckets>(std::move(parameters), group, std::move(options), site);
  buckets->watch();
  tell_part(module, part_of_samples(mesh));
  module.register_forward_pre_hook([buckets, broadcasts, site](nn::Module& called, const Tensors&) {
    buckets->watch();
    const bool trains = called.is_training() && is_grad_enabled() && !buckets->is_paused();
    if (broadcasts && trains) broadcast(called.buffers(), buckets->group(), site);
    return Tensors();
  });
  // Of a graph that outlives the module gradients are averaged all the same.
  module.register_forward_hook([buckets](nn::Module&, const Tensors&, const Tensors& outputs) {
    for (const Tensor& output : outputs) {
      if (output.defined() && output.requires_grad() && !output.is_leaf())
        output.register_hook([buckets](const Tensor&) { return Tensor(); });
    }
    return Tensors();
  });
  return DataParallel(buckets);
}

}  // namespace dtrun::dtensor
