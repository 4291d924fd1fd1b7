#include "parallel/pipeline_random.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dtrun/dtensor/nn/activations.h"
#include "dtrun/dtensor/nn/multihead_attention.h"

namespace dtrun::dtensor {

std::int64_t PipelineRandom::streams_of(nn::Module& stage) {
  std::int64_t streams = 0;
  for (const auto& [path, module] : stage.named_modules()) {
    if (module->as<nn::Dropout>() != nullptr) ++streams;
    const auto* const attention = module->as<nn::MultiheadAttention>();
    if (attention != nullptr && attention->options.dropout != 0) ++streams;
  }
  return streams;
}

std::int64_t PipelineRandom::total() const {
  return std::accumulate(streams_.begin(), streams_.end(), std::int64_t{0});
}

void PipelineRandom::begin(int batches) {
  before_ = random_state();
  batches_ = batches;
  taken_.assign(streams_.size(), 0);
}

void PipelineRandom::begin_forward(int stage, int batch) {
  const std::int64_t of_stages_before =
      std::accumulate(streams_.begin(), streams_.begin() + stage, std::int64_t{0});
  begun_at_ = before_.calls + static_cast<std::uint64_t>(batch * total() + of_stages_before);
  set_random_state({before_.seed, begun_at_});
}

void PipelineRandom::end_forward(int stage) {
  const auto taken = static_cast<std::int64_t>(random_state().calls - begun_at_);
  std::int64_t& most = taken_[static_cast<std::size_t>(stage)];
  most = std::max(most, taken);
}

void PipelineRandom::settle(std::vector<std::int64_t> streams) {
  streams_ = std::move(streams);
  is_settled_ = true;
}

void PipelineRandom::end_step() {
  set_random_state({before_.seed, before_.calls + static_cast<std::uint64_t>(batches_ * total())});
}
void PipelineRandom::end_evaluation() {
  set_random_state(before_);
}

}  // namespace dtrun::dtensor
