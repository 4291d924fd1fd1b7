// explain_step: the plan of a training step: which parameters lie where, what forward and backward
// send, and the memory of a rank, predicted and measured.
//
//     const StepExplanation plan = explain_step(*model, optimizer, [&] {
//       loss_of((*model)(samples)).backward();
//       optimizer.step();
//     });
//     if (rank == 0) print("{}", plan.to_string());
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor {

struct ExplainedParameter {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  std::string layout;           ///< "[S(0)] on (dp=2)"; "plain"
  std::int64_t bytes_here = 0;  ///< of this rank's part
  std::int64_t bytes_whole = 0;
  bool is_trained = true;
};

struct StepMemory {
  // Predicted, in bytes: what this rank holds between steps.
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t states = 0;
  /// The largest gather of the step, whole: what fully_shard() holds of a unit for a while.
  std::int64_t gathered = 0;
  std::int64_t predicted() const { return parameters + gradients + states + gathered; }
  /// What the forward leaves for backward, as the allocator had counted it when backward began. It
  /// depends on the samples.
  std::int64_t activations = 0;
  std::int64_t predicted_peak() const { return predicted() + activations; }
  // Measured, in bytes, of the process.
  /// Tensors of all sizes, at their most in this step, in predicted_peak()'s terms: parameters,
  /// states and gradients that stood before it, and what the allocator made beyond them. 0: another
  /// HostMemoryMeter stood. Of CPU tensors.
  std::int64_t step_peak = 0;
  std::int64_t tensors_peak = 0;   ///< tensors of 1 MiB and more, at their most in this step
  std::int64_t resident_peak = 0;  ///< memory of any kind, at its most so far
};

struct StepExplanation {
  std::vector<ExplainedParameter> parameters;
  CommCounts forward;    ///< of the modules
  CommCounts backward;   ///< of all that backward() did
  CommCounts elsewhere;  ///< losses, clipping, optimizers, messages between stages
  /// By the modules' paths, each with those within it: "Gpt.blocks.0".
  std::map<std::string, PassCounts> modules;
  StepMemory memory;

  std::string to_string() const;
};

/// Runs the step, once, and looks. Each rank tells of itself. Collective where the step is.
StepExplanation explain_step(const nn::Module& model, const optim::Optimizer& optimizer,
                             const std::function<void()>& step);

std::ostream& operator<<(std::ostream& out, const StepExplanation& explanation);

}  // namespace dtrun::dtensor
