// PipelineWork: how a batch goes through this rank's stages of a pipeline, forward and backward.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dtrun/dtensor/parallel/pipeline.h"
#include "parallel/pipeline_random.h"
#include "parallel/pipeline_wire.h"

namespace dtrun::dtensor {

class PipelineWork {
 public:
  /// @param stages this rank's
  PipelineWork(std::vector<std::shared_ptr<nn::Module>> stages, const DeviceMesh& mesh,
               PipelineOptions options, const Tensor::Site& site);

  enum class Mode : unsigned char { train, evaluate, forward };
  /// @return the mean loss of all microbatches, on every rank; of Mode::forward what the last stage
  /// gives
  Tensor run(Mode mode, const Tensor& inputs, const Tensor& targets, const Tensor::Site& site);

 private:
  /// What backward needs of a microbatch in a stage.
  struct Kept {
    Tensor input;
    Tensor output;  ///< of the last stage: its part of the loss
  };
  using Place = std::pair<int, int>;  ///< stage and microbatch

  void forward(int stage, int microbatch);
  Tensor stage_output(int stage, int microbatch, const Tensor& input);
  /// How many random streams each stage takes, by a forward of the first microbatch.
  void count_streams();
  /// How many random streams each stage has taken, to all ranks.
  void exchange_streams();
  void begin_wire(const Tensor& inputs, const char* purpose,
                  const std::vector<std::vector<PipelineAction>>& all);
  int batches() const { return mode_ == Mode::train ? options_.accumulated : 1; }
  /// Of which batch it is a part.
  int batch_of(int microbatch) const { return microbatch / (shape_.microbatches / batches()); }
  void backward(int stage, int microbatch);
  void run_backward(int stage, const Tensor& output, const Tensor& gradient);
  Tensor part_of_loss(int microbatch, const Tensor& output);
  Tensor whole_output();
  /// To all ranks.
  void tell_loss(const Tensor::Site& site);
  std::vector<std::vector<PipelineAction>> lists() const;
  void cut_batch(const Tensor& inputs, const Tensor& targets);
  void check(const Tensor& inputs, const Tensor& targets) const;
  bool is_last(int stage) const { return stage + 1 == shape_.stages(); }
  std::size_t own(int stage) const { return static_cast<std::size_t>(stage / shape_.ranks); }

  const std::vector<std::shared_ptr<nn::Module>> stages_;
  const ProcessGroup group_;
  const PipelineOptions options_;
  PipelineShape shape_;                                     ///< of the batch at hand
  std::vector<std::optional<DataParallel>> data_parallel_;  ///< of each stage
  PipelineWire wire_;
  PipelineRandom random_;

  bool has_failed_ = false;

  // Of one batch.
  Mode mode_ = Mode::train;
  Tensor::Site site_;
  Tensors inputs_, targets_;  ///< by microbatch
  std::int64_t whole_rows_ = 0;
  std::vector<double> shares_;  ///< of a microbatch in the batch
  std::map<Place, Kept> kept_;
  std::map<int, Tensor> outputs_;  ///< of the last stage, by microbatch
  Tensor loss_;
  std::vector<int> backwards_to_come_;  ///< of each stage
};

}  // namespace dtrun::dtensor
