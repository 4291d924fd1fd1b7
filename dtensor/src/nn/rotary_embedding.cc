#include "dtrun/dtensor/nn/rotary_embedding.h"

#include <string>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/views.h"
#include "nn/python_text.h"

namespace dtrun::dtensor::nn {
namespace {

using base::Error;
using base::ErrorCode;

/// [positions, dim / 2], in f64: large positions keep their angle.
Tensor angles(const Tensor& positions, std::int64_t dim, double base) {
  const Tensor exponents = arange(dim / 2).to(DType::f64) * (-2.0 / static_cast<double>(dim));
  const Tensor rates = pow(full({}, base, {.dtype = DType::f64}), exponents);
  return positions.to(tensors::kCpu).to(DType::f64).unsqueeze(-1) * rates;
}

/// A plain table beside `input`, of its dtype and device, and on its mesh.
Tensor beside(const Tensor& table, const Tensor& input) {
  const Tensor own = table.to(input.dtype()).to(input.device());
  if (!input.is_distributed()) return own;
  return Tensor::from_local(own, input.device_mesh(),
                            Placements(input.placements().size(), Replicate()));
}

}  // namespace

RotaryEmbeddingModule::RotaryEmbeddingModule(std::int64_t its_dim,
                                             RotaryEmbeddingOptions its_options)
    : dim(its_dim), options(its_options) {
  if (dim > 0 && dim % 2 == 0 && options.base > 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a RotaryEmbedding of " + std::to_string(dim) + " numbers, base " +
                  std::to_string(options.base),
              "pairs of them are turned", "an even dim, and a base above 0");
}

Tensor RotaryEmbeddingModule::forward(const Tensor& input) {
  return turned(input, arange(input.dim() < 2 ? 0 : input.size(-2)));
}

Tensors RotaryEmbeddingModule::forward_all(const Tensors& inputs) {
  if (inputs.size() == 1) return {forward(inputs[0])};
  if (inputs.size() != 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "RotaryEmbedding was called with " + std::to_string(inputs.size()) + " tensors",
                "it takes one, and its positions", "forward(input), or (input, positions)");
  }
  return {turned(inputs[0], inputs[1])};
}

Tensor RotaryEmbeddingModule::turned(const Tensor& input, const Tensor& positions) const {
  if (input.dim() < 2 || input.size(-1) != dim || positions.dim() != 1 ||
      positions.size(0) != input.size(-2)) {
    throw Error(ErrorCode::kInvalidArgument,
                "RotaryEmbedding of " + tensors::shape_to_string(input.shape()) +
                    " at positions of shape " + tensors::shape_to_string(positions.shape()),
                "it takes [..., positions, " + std::to_string(dim) + "] and [positions]",
                "a position for each row, and a RotaryEmbedding of that last size");
  }
  const Tensor turns = angles(positions, dim, options.base);
  const Tensor cosine = beside(cos(turns), input), sine = beside(sin(turns), input);
  if (options.pairs == RotaryPairs::halves) {
    const Tensors x = split(input, dim / 2, -1);
    return cat({x[0] * cosine - x[1] * sine, x[1] * cosine + x[0] * sine}, -1);
  }
  const Tensor pairs = unflatten(input, -1, {dim / 2, 2});
  const Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  return flatten(stack({a * cosine - b * sine, b * cosine + a * sine}, -1), -2);
}

std::string RotaryEmbeddingModule::extra_repr() const {
  return std::to_string(dim) + ", base=" + python_number(options.base) +
         (options.pairs == RotaryPairs::halves ? "" : ", pairs=adjacent");
}

}  // namespace dtrun::dtensor::nn
