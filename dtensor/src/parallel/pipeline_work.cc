#include "parallel/pipeline_work.h"
#include "autograd/node.h"

#include <algorithm>
#include <string>

#include "autograd/random_part.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "move/cause.h"
#include "move/told_calls.h"
#include "parallel/one_axis.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using MessageKind = PipelineMessage::Kind;

PipelineShape shape_of(const std::vector<std::shared_ptr<nn::Module>>& stages,
                       const ProcessGroup& group, const PipelineOptions& options) {
  PipelineShape shape{group.size(), static_cast<int>(stages.size()), options.microbatches};
  if (shape.microbatches == 0) shape.microbatches = shape.stages();
  return shape;
}

/// Of each rank.
std::vector<std::int64_t> gathered(const std::vector<std::int64_t>& own, const ProcessGroup& group,
                                   Device device, const Tensor::Site& site) {
  const auto count = static_cast<std::int64_t>(own.size());
  const LocalTensor all = tensors::zeros({group.size(), count}, {DType::i64, device});
  group.all_gather_into_tensor(all, tensors::tensor_from(own, {1, count}, DType::i64).to(device),
                               {}, site);
  return all.to_vector_i64();
}

/// Of each rank's stages, to the order of the model.
std::vector<std::int64_t> in_model_order(const std::vector<std::int64_t>& by_rank, int ranks) {
  std::vector<std::int64_t> by_stage(by_rank.size());
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t each = by_rank.size() / count;
  for (std::size_t i = 0; i < by_rank.size(); ++i)
    by_stage[i % each * count + i / each] = by_rank[i];
  return by_stage;
}

/// @throws Error kDisagreement
void check_same_settings(const PipelineShape& shape, const PipelineOptions& options,
                         const ProcessGroup& group, Device device, const Tensor::Site& site) {
  const std::vector<std::int64_t> values =
      gathered({shape.stages_per_rank, shape.microbatches, static_cast<int>(options.order),
                options.accumulated},
               group, device, site);
  const auto text = [&](std::size_t rank) {
    return "rank " + std::to_string(group.global_ranks()[rank]) + " has " +
           std::to_string(values[4 * rank]) + " stages, " + std::to_string(values[4 * rank + 1]) +
           " microbatches of " + std::to_string(values[4 * rank + 3]) + " batches, order " +
           (values[4 * rank + 2] == 0 ? "gpipe" : "one_f_one_b");
  };
  for (std::size_t rank = 1; 4 * rank < values.size(); ++rank) {
    const auto its = values.begin() + static_cast<std::ptrdiff_t>(4 * rank);
    if (std::equal(its, its + 4, values.begin())) continue;
    throw Error(ErrorCode::kDisagreement, "the ranks' pipelines differ",
                text(0) + "; " + text(rank), "the same options on all ranks of the axis");
  }
}

bool wants_gradients(const nn::Module& module) {
  const Tensors parameters = module.parameters();
  return std::ranges::any_of(parameters, [](const Tensor& one) { return one.requires_grad(); });
}

std::vector<std::int64_t> own_streams(const std::vector<std::shared_ptr<nn::Module>>& stages) {
  std::vector<std::int64_t> streams;
  for (const auto& stage : stages) streams.push_back(PipelineRandom::streams_of(*stage));
  return streams;
}

Device device_of(const std::vector<std::shared_ptr<nn::Module>>& stages) {
  for (const auto& stage : stages) {
    for (const Tensor& parameter : stage->parameters()) return parameter.device();
  }
  return tensors::kCpu;
}

/// Sizes of equal parts; the first ones have one more where they are not.
std::vector<std::int64_t> part_sizes(std::int64_t whole, int parts) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), whole / parts);
  for (std::int64_t i = 0; i < whole % parts; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

}  // namespace

PipelineWork::PipelineWork(std::vector<std::shared_ptr<nn::Module>> stages, const DeviceMesh& mesh,
                           PipelineOptions options, const Tensor::Site& site)
    : stages_(std::move(stages)),
      group_(group_of_one_axis("Pipeline", mesh)),
      options_(std::move(options)),
      shape_(shape_of(stages_, group_, options_)),
      wire_(group_),
      random_({}) {
  pipeline_actions(options_.order, shape_, 0);  // refuses what has no schedule
  if (options_.accumulated < 1 || shape_.microbatches % options_.accumulated != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "a pipeline of " + std::to_string(shape_.microbatches) + " microbatches of " +
                    std::to_string(options_.accumulated) + " batches",
                "each batch has as many of them", "a multiple");
  }
  check_same_settings(shape_, options_, group_, device_of(stages_), site);
  random_ = PipelineRandom(in_model_order(
      gathered(own_streams(stages_), group_, device_of(stages_), site), group_.size()));
  for (const auto& stage : stages_) {
    std::optional<DataParallel> parallel;
    if (options_.data_parallel && wants_gradients(*stage)) {
      parallel =
          data_parallel(*stage, *options_.data_parallel, options_.data_parallel_options, site);
    }
    data_parallel_.push_back(std::move(parallel));
  }
}

void PipelineWork::check(const Tensor& inputs, const Tensor& targets) const {
  const auto refuse = [](const std::string& what, const std::string& why, const char* remedy) {
    throw Error(ErrorCode::kInvalidArgument, what, why, remedy);
  };
  const std::int64_t samples = inputs.dim() == 0 ? 0 : inputs.size(0);
  if (inputs.is_distributed() || (mode_ != Mode::forward && targets.is_distributed())) {
    refuse("a pipeline's batch is a distributed tensor", "its stages work on plain ones",
           "this rank's samples as plain tensors, the same on all ranks of the pipeline");
  }
  if (samples == 0 || (mode_ == Mode::train && samples < shape_.microbatches)) {
    refuse("a batch of " + std::to_string(samples) + " samples for " +
               std::to_string(shape_.microbatches) + " microbatches",
           "each has at least one", "a larger batch, or fewer microbatches");
  }
  if (samples % batches() != 0) {
    refuse(std::to_string(samples) + " samples of " + std::to_string(batches()) + " batches",
           "these have equally many", "a multiple, or no .accumulated");
  }
  if (mode_ == Mode::forward) return;
  if (!options_.loss) {
    refuse("a pipeline without a loss", "step() and evaluate() need one",
           "Pipeline(model, mesh, {.loss = ...})");
  }
  if (targets.dim() == 0 || targets.size(0) % samples != 0) {
    refuse("targets of shape " + tensors::shape_to_string(targets.shape()) + " for " +
               std::to_string(samples) + " samples",
           "they are cut along dim 0 as the inputs are", "as many rows for each sample");
  }
}

void PipelineWork::cut_batch(const Tensor& inputs, const Tensor& targets) {
  std::vector<std::int64_t> sizes;
  for (int batch = 0; batch < batches(); ++batch) {
    for (const std::int64_t size :
         part_sizes(inputs.size(0) / batches(), shape_.microbatches / batches()))
      sizes.push_back(size);
  }
  inputs_ = split(inputs, sizes);
  // A stage may write to its input, whether that is a view of the batch or a copy.
  for (const Tensor& input : inputs_) Graph::mark_copy(input, false);
  whole_rows_ = inputs.size(0);
  shares_.clear();
  for (const std::int64_t size : sizes)
    shares_.push_back(static_cast<double>(size) / static_cast<double>(inputs.size(0)));
  if (mode_ == Mode::forward) return;
  std::vector<std::int64_t> rows = sizes;
  for (std::int64_t& row : rows) row *= targets.size(0) / inputs.size(0);
  targets_ = split(targets, rows);
}

std::vector<std::vector<PipelineAction>> PipelineWork::lists() const {
  std::vector<std::vector<PipelineAction>> lists;
  const bool trains = mode_ == Mode::train;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    lists.push_back(pipeline_actions(trains ? options_.order : PipelineOrder::gpipe, shape_, rank));
    if (trains) continue;
    std::erase_if(lists.back(), [](const PipelineAction& action) {
      return action.kind == PipelineAction::Kind::backward;
    });
  }
  return lists;
}

Tensor PipelineWork::run(Mode mode, const Tensor& inputs, const Tensor& targets,
                         const Tensor::Site& site) {
  mode_ = mode;
  site_ = site;
  shape_ = shape_of(stages_, group_, options_);
  check(inputs, targets);
  if (has_failed_) {
    throw Error(ErrorCode::kUsage, "a batch for a pipeline in which an earlier one has failed",
                "what its stages had sent may be taken for this one's",
                "end the job: under --max-restarts it begins again");
  }
  shape_.microbatches =
      static_cast<int>(std::min<std::int64_t>(shape_.microbatches, inputs.size(0)));
  cut_batch(inputs, targets);
  kept_.clear();
  outputs_.clear();
  loss_ = zeros({}, {.dtype = DType::f64, .device = inputs.device()});
  backwards_to_come_.assign(stages_.size(), shape_.microbatches);
  has_failed_ = true;  // until it has come to its end
  if (mode == Mode::train && random_.is_unknown()) count_streams();
  const auto all = lists();
  begin_wire(inputs, mode == Mode::train ? "train " : "evaluate ", all);
  random_.begin(batches());
  const GradMode records(mode == Mode::train);
  for (const auto& [kind, stage, microbatch] : all[static_cast<std::size_t>(group_.rank())]) {
    if (kind == PipelineAction::Kind::forward) {
      forward(stage, microbatch);
    } else {
      backward(stage, microbatch);
    }
  }
  wire_.end();
  has_failed_ = false;
  inputs_.clear();
  targets_.clear();
  const NoGrad no_grad;
  if (mode == Mode::train) {
    tell_loss(site);
    if (random_.is_exchanged()) exchange_streams();
    random_.end_step();
    return loss_;
  }
  random_.end_evaluation();
  if (mode == Mode::forward) return wire_.from_last_rank(whole_output());
  tell_loss(site);
  return loss_;
}

void PipelineWork::tell_loss(const Tensor::Site& site) {
  if (group_.size() == 1) return;
  const ToldCalls told("the pipeline's loss", site);
  group_.broadcast(loss_.local(), group_.size() - 1, {}, site);
}

void PipelineWork::begin_wire(const Tensor& inputs, const char* purpose,
                              const std::vector<std::vector<PipelineAction>>& all) {
  const std::string key = purpose + std::to_string(static_cast<int>(inputs.dtype())) +
                          tensors::shape_to_string(inputs.shape());
  wire_.begin(key, all, shape_, inputs.device(), site_);
}

// The modules' buffers are put back: a forward in training may change them.
void PipelineWork::count_streams() {
  const NoGrad no_grad;
  std::vector<std::pair<Tensor, LocalTensor>> before;
  for (const auto& stage : stages_) {
    for (const auto& [name, buffer] : stage->named_buffers())
      before.emplace_back(buffer, buffer.local().clone());
  }
  const PipelineShape shape = shape_;
  mode_ = Mode::forward;
  shape_.microbatches = 1;
  begin_wire(inputs_[0], "count ", lists());
  random_.begin(1);
  for (int stage = group_.rank(); stage < shape_.stages(); stage += group_.size())
    forward(stage, 0);
  wire_.end();
  outputs_.clear();
  exchange_streams();
  random_.end_evaluation();
  for (const auto& [buffer, elements] : before) buffer.local().copy_(elements);
  mode_ = Mode::train;
  shape_ = shape;
}

void PipelineWork::exchange_streams() {
  std::vector<std::int64_t> taken;
  for (int stage = group_.rank(); stage < shape_.stages(); stage += group_.size())
    taken.push_back(random_.taken(stage));
  random_.settle(in_model_order(gathered(taken, group_, loss_.device(), site_), group_.size()));
}

void PipelineWork::forward(int stage, int microbatch) {
  const Tensor input = stage == 0 ? inputs_[static_cast<std::size_t>(microbatch)]
                                  : wire_.receive({MessageKind::activation, stage, microbatch});
  const Tensor output = stage_output(stage, microbatch, input);
  if (!is_last(stage)) wire_.send({MessageKind::activation, stage + 1, microbatch}, output);
  if (mode_ == Mode::train) kept_[{stage, microbatch}] = {input, output};
}

Tensor PipelineWork::stage_output(int stage, int microbatch, const Tensor& input) {
  // Where its rows lie in the batch that one rank would have computed at once.
  const int batch = batch_of(microbatch), each = shape_.microbatches / batches();
  std::int64_t first = 0;
  for (int before = batch * each; before < microbatch; ++before)
    first += inputs_[static_cast<std::size_t>(before)].size(0);
  const std::int64_t rows = inputs_[static_cast<std::size_t>(microbatch)].size(0);
  const RandomPart::Entered entered(std::make_shared<const RandomPart>(
      RandomPart::Level::microbatch, std::vector<std::int64_t>{first}, rows,
      whole_rows_ / batches(), std::vector<int>()));
  random_.begin_forward(stage, batch);
  // Buffers are made equal once a batch.
  const auto& parallel = data_parallel_[own(stage)];
  const auto call = [&] { return (*stages_[own(stage)])(input); };
  const auto call_alone = [&] {
    const auto paused = parallel->no_sync();
    return call();
  };
  Tensor output = parallel && microbatch > 0 ? call_alone() : call();
  if (is_last(stage) && mode_ != Mode::forward) output = part_of_loss(microbatch, output);
  if (is_last(stage) && mode_ == Mode::forward)
    outputs_[microbatch] = output.is_distributed() ? output.full_tensor(site_) : output;
  random_.end_forward(stage);
  return output;
}

Tensor PipelineWork::part_of_loss(int microbatch, const Tensor& output) {
  const auto at = static_cast<std::size_t>(microbatch);
  const Tensor part = options_.loss(output, targets_[at]) * shares_[at];
  const Tensor number = part.detach();
  const Cause cause("the pipeline's loss", Cause::Wish::asked, site_);
  loss_ = loss_ + (number.is_distributed() ? number.full_tensor() : number).to(DType::f64);
  return part;
}

void PipelineWork::backward(int stage, int microbatch) {
  const Kept kept = std::move(kept_.extract({stage, microbatch}).mapped());
  --backwards_to_come_[own(stage)];
  if (kept.output.requires_grad()) {
    const Tensor gradient =
        is_last(stage) ? Tensor() : wire_.receive({MessageKind::gradient, stage, microbatch});
    run_backward(stage, kept.output, gradient);
  }
  if (stage == 0 || !kept.input.requires_grad()) return;
  const Tensor gradient = kept.input.grad();
  // A stage that does not use its input tells so by zeros.
  wire_.send({MessageKind::gradient, stage - 1, microbatch},
             gradient.defined() ? gradient
                                : zeros(kept.input.shape(), {.dtype = kept.input.dtype(),
                                                             .device = kept.input.device()}));
}

void PipelineWork::run_backward(int stage, const Tensor& output, const Tensor& gradient) {
  const auto go = [&] {
    if (gradient.defined()) {
      output.backward(gradient);
    } else {
      output.backward();
    }
  };
  const auto& parallel = data_parallel_[own(stage)];
  if (!parallel || backwards_to_come_[own(stage)] == 0) return go();
  const auto paused = parallel->no_sync();
  go();
}

Tensor PipelineWork::whole_output() {
  Tensors parts;
  for (const auto& [microbatch, output] : outputs_) parts.push_back(output);
  outputs_.clear();
  return parts.empty() ? Tensor() : cat(parts);
}

}  // namespace dtrun::dtensor
