// Pipeline: each rank has some layers of a model. A batch goes through as microbatches, so that all
// ranks work at the same time. torch.distributed.pipelining.
//
//     Pipeline pipeline(model, mesh["pp"], {.microbatches = 8, .loss = loss_of});
//     optim::AdamW optimizer(pipeline.model()->parameters());   // this rank's layers
//     const Tensor loss = pipeline.step(samples, targets);      // gradients are there
//
// Collective over the axis: all of its ranks call with tensors of the same shapes. The first stage
// looks at the inputs, the last one at the targets. Between stages flow plain tensors, one each way
// and microbatch; parallelize() along another axis leaves them so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/parallel/data_parallel.h"
#include "dtrun/dtensor/parallel/pipeline_schedule.h"

namespace dtrun::dtensor {

struct PipelineOptions {
  /// Parts of a batch, cut along dim 0; sizes differ by at most one. Not given: as many as stages.
  int microbatches = 0;
  /// Batches of which a step's samples are made, one after the other: dropout draws for each as a
  /// forward of its own would. A divisor of the microbatches and of the samples.
  int accumulated = 1;
  PipelineOrder order = PipelineOrder::one_f_one_b;
  int stages_per_rank = 1;  ///< of a Sequential
  /// Of the last stage's output and the targets: a mean over samples.
  std::function<Tensor(const Tensor& output, const Tensor& target)> loss = {};
  /// Of a Sequential: the children at which all stages but the first begin. Not given: such that
  /// the stage with the most parameters has as few as can be.
  std::vector<std::int64_t> split_before = {};
  /// The axis of data_parallel(), which is called for each stage: gradients travel along it in the
  /// last microbatch's backward.
  std::optional<DeviceMesh> data_parallel = std::nullopt;
  DataParallelOptions data_parallel_options = {};
};

class PipelineWork;

class Pipeline {
 public:
  /// Cuts the children into stages. They keep their names and are shared with the model; what lies
  /// on other ranks is freed with it. The ranks' models must be alike, but for their numbers.
  /// @throws Error kInvalidArgument for a mesh of several axes and fewer children than stages;
  /// kDisagreement, naming the first difference
  Pipeline(const nn::Sequential& model, const DeviceMesh& mesh, PipelineOptions options = {},
           Tensor::Site site = Tensor::Site::current());
  /// Of this rank's stages, any modules: stage `rank`, `rank + ranks`, ..., as many on each rank.
  static Pipeline of_stages(std::vector<std::shared_ptr<nn::Module>> stages, const DeviceMesh& mesh,
                            PipelineOptions options = {},
                            Tensor::Site site = Tensor::Site::current());
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// Forward and backward of a batch; gradients are added up. @return the mean loss, 0-dim, f64, on
  /// every rank @throws Error kInvalidArgument for fewer samples than microbatches; kUsage after a
  /// batch in which something has thrown, whose messages may still be on their way
  Tensor step(const Tensor& inputs, const Tensor& targets,
              Tensor::Site site = Tensor::Site::current());
  /// The same loss, without gradients.
  Tensor evaluate(const Tensor& inputs, const Tensor& targets,
                  Tensor::Site site = Tensor::Site::current());
  /// What the last stage gives, without gradients, on every rank.
  Tensor forward(const Tensor& inputs, Tensor::Site site = Tensor::Site::current());

  /// This rank's layers: of a Sequential under the names that they have in it, otherwise "0", "1".
  const nn::Sequential& model() const { return model_; }
  /// This rank's stages, in the order of the model.
  const std::vector<std::shared_ptr<nn::Module>>& stages() const { return stages_; }

 private:
  Pipeline() = default;

  nn::Sequential model_;
  std::vector<std::shared_ptr<nn::Module>> stages_;
  std::unique_ptr<PipelineWork> work_;
};

}  // namespace dtrun::dtensor
