// PipelineRandom: which random numbers a stage draws for a microbatch: those that one rank would
// have drawn at that place of the model. Their streams are numbered, so each stage has to know how
// many the stages before it take. Where modules draw, a forward before the first step counts them;
// later steps do so by themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

class PipelineRandom {
 public:
  /// @param streams of each stage of the pipeline: streams_of()
  explicit PipelineRandom(std::vector<std::int64_t> streams) : streams_(std::move(streams)) {}

  /// What a forward in training takes where each of its modules is called once: 0 where none draws.
  static std::int64_t streams_of(nn::Module& stage);

  /// A step whose microbatches come from this many batches.
  void begin(int batches);
  /// The stage's forward, and then those after it, take the streams that are theirs.
  void begin_forward(int stage, int batch);
  void end_forward(int stage);
  /// After the last forward, of any mode: the state as the whole model would leave it.
  void end_step();
  /// As if nothing had been drawn.
  void end_evaluation();

  /// Whether a forward has to count them before the first step.
  bool is_unknown() const { return !is_settled_ && total() > 0; }
  /// Whether ranks have to tell each other what their stages took.
  bool is_exchanged() const { return !is_settled_ || total() > 0; }
  std::int64_t taken(int stage) const { return taken_[static_cast<std::size_t>(stage)]; }
  /// By stage, on all ranks.
  void settle(std::vector<std::int64_t> streams);

 private:
  std::int64_t total() const;

  std::vector<std::int64_t> streams_, taken_;
  bool is_settled_ = false;
  RandomState before_;  ///< the step
  int batches_ = 1;
  std::uint64_t begun_at_ = 0;
};

}  // namespace dtrun::dtensor
