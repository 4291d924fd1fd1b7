// layer_norm and rms_norm of rows of which ranks hold stretches: a few numbers of each row travel,
// in one collective each way.
#pragma once

#include "ops/reduced_dims.h"

namespace dtrun::dtensor {

enum class NormForm : std::uint8_t { layer, root_mean_square };

struct CutNorm {
  NormForm form;
  int dims;  ///< the last ones
  double eps;
};

ReducedDims last_dims_of(const Tensor& a, int dims);
/// Whether ranks hold different stretches of a row.
bool has_cut_rows(const Tensor& a, int dims);
/// Lies as `a` does. @param weight, bias undefined where there is none
Tensor norm_of_cut(const Tensor& a, const CutNorm& norm, const Tensor& weight, const Tensor& bias);

/// Outside the graph.
struct CutNormGradients {
  Tensor x;
  Tensor normalized;  ///< the rows, of f32 at least, before weight and bias
  Tensor gradient;    ///< of the result, of the same dtype, lying as they do
};
CutNormGradients norm_gradients_of_cut(const Tensor& gradient, const Tensor& a, const CutNorm& norm,
                                       const Tensor& weight);

}  // namespace dtrun::dtensor
