#include "dtrun/dtensor/parallel/pipeline.h"

#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "nn/model_agreement.h"
#include "parallel/one_axis.h"
#include "parallel/pipeline_split.h"
#include "parallel/pipeline_work.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

Pipeline::Pipeline(const nn::Sequential& model, const DeviceMesh& mesh, PipelineOptions options,
                   Tensor::Site site) {
  const ProcessGroup& group = group_of_one_axis("Pipeline", mesh);
  if (options.stages_per_rank < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "a pipeline of " + std::to_string(options.stages_per_rank) + " stages per rank", "",
                "numbers from 1");
  }
  // First: what follows refuses on all ranks, or on none.
  check_same_model("Pipeline", *model, group, site);
  const int stages = group.size() * options.stages_per_rank;
  const std::vector<std::int64_t> cuts = options.split_before.empty()
                                             ? balanced_cuts(child_weights(*model), stages)
                                             : options.split_before;
  const auto parts = stages_of(*model, cuts, stages);
  for (int own = 0; own < options.stages_per_rank; ++own) {
    const auto& part = parts[static_cast<std::size_t>(own * group.size() + group.rank())];
    stages_.push_back(part);
    for (const auto& [name, child] : part->named_children()) model_->register_module(name, child);
  }
  work_ = std::make_unique<PipelineWork>(stages_, mesh, std::move(options), site);
}

Pipeline Pipeline::of_stages(std::vector<std::shared_ptr<nn::Module>> stages,
                             const DeviceMesh& mesh, PipelineOptions options, Tensor::Site site) {
  Pipeline pipeline;
  for (const auto& stage : stages) pipeline.model_->push_back(stage);
  pipeline.stages_ = std::move(stages);
  pipeline.work_ = std::make_unique<PipelineWork>(pipeline.stages_, mesh, std::move(options), site);
  return pipeline;
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

Tensor Pipeline::step(const Tensor& inputs, const Tensor& targets, Tensor::Site site) {
  return work_->run(PipelineWork::Mode::train, inputs, targets, site);
}

Tensor Pipeline::evaluate(const Tensor& inputs, const Tensor& targets, Tensor::Site site) {
  return work_->run(PipelineWork::Mode::evaluate, inputs, targets, site);
}

Tensor Pipeline::forward(const Tensor& inputs, Tensor::Site site) {
  return work_->run(PipelineWork::Mode::forward, inputs, Tensor(), site);
}

}  // namespace dtrun::dtensor
