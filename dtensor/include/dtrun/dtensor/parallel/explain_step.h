// explain_step: the plan of a training step: which parameters lie where, what forward and backward
// send, and the memory of a rank, predicted and measured.
//
//     const auto pass = [&] { loss_of((*model)(samples)).backward(); };
//     const StepMemory predicted = predict_step(*model, optimizer, pass);
//     const auto step = [&] { pass(); optimizer.step(); };
//     const StepExplanation plan = explain_step(*model, optimizer, step, predicted);
//     if (rank == 0) print("{}", plan.to_string());
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/optim/optimizer.h"
#include "dtrun/dtensor/parallel/predict_step.h"

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

struct StepExplanation {
  std::vector<ExplainedParameter> parameters;
  CommCounts forward;    ///< of the modules
  CommCounts backward;   ///< of all that backward() did
  CommCounts elsewhere;  ///< losses, clipping, optimizers, messages between stages
  /// By the modules' paths, each with those within it: "Gpt.blocks.0".
  std::map<std::string, PassCounts> modules;
  /// As measured; states as they are after the step.
  StepMemory memory;
  std::optional<StepMemory> predicted;
  std::int64_t tensors_peak = 0;   ///< tensors of 1 MiB and more, at their most in this step
  std::int64_t resident_peak = 0;  ///< memory of any kind of the process, at its most so far

  std::string to_string() const;
};

/// Runs the step, once, and looks. Each rank tells of itself. Collective where the step is.
/// @param predicted by predict_step(), to stand beside what is measured
StepExplanation explain_step(const nn::Module& model, const optim::Optimizer& optimizer,
                             const std::function<void()>& step,
                             std::optional<StepMemory> predicted = {});

std::ostream& operator<<(std::ostream& out, const StepExplanation& explanation);

}  // namespace dtrun::dtensor
