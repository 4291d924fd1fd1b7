// Muon: momentum whose singular values are all made about 1, for the matrices within a model
// (Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024). torch.optim.Muon.
// Other parameters, and embeddings and heads, belong to AdamW.
#pragma once

#include <vector>

#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor::optim {

/// What the rate is multiplied by, for a matrix of r rows and c columns.
enum class MuonRate : unsigned char {
  original,         ///< sqrt(max(1, r / c))
  match_rms_adamw,  ///< 0.2 sqrt(max(r, c)), so that AdamW's rate can be taken (Moonlight, 2025)
};

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  int ns_steps = 5;  ///< of Newton and Schulz's iteration
  double eps = 1e-7;
  MuonRate rate = MuonRate::original;
  bool master_weights = false;  ///< f16 and bf16 parameters are changed through f32 copies
};

/// A matrix on a mesh is gathered for the iteration, on every rank. The iteration runs in the
/// parameters' dtype, PyTorch's in bf16.
class Muon : public Optimizer {
 public:
  /// @throws Error kInvalidArgument for a parameter that is no matrix, and options out of range
  explicit Muon(const Tensors& parameters, const MuonOptions& options = {});
  explicit Muon(const std::vector<ParameterGroup<MuonOptions>>& groups);

 private:
  void update(std::size_t group, const Parts& parts) override;

  std::vector<MuonOptions> options_;
};

}  // namespace dtrun::dtensor::optim
