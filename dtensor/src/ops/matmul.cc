// matmul: torch.matmul's shapes.
#include "autograd/call.h"
#include "dispatch/matmul_operation.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

sharding::Operation product_of(Metas in) {
  return sharding::matmul_operation({in[0].shape, in[0].dtype, {}}, {in[1].shape, in[1].dtype, {}},
                                    in[0].dtype);
}

Meta product_meta(Metas in, const None&) {
  if (in[0].dtype != in[1].dtype) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "matmul of " + std::string(tensors::dtype_short_name(in[0].dtype)) +
                          tensors::shape_to_string(in[0].shape) + " and " +
                          std::string(tensors::dtype_short_name(in[1].dtype)) +
                          tensors::shape_to_string(in[1].shape),
                      "the dtypes differ", "to() one of them");
  }
  return {product_of(in).output_shape, in[0].dtype};
}

/// Gradients of a product of matrices [..., n, k] and [..., k, m].
Tensor left_gradient(const Tensor& gradient, const Tensor& right, const Shape& left) {
  return sum_to(matmul(gradient, right.transpose(-2, -1)), left);
}
Tensor right_gradient(const Tensor& gradient, const Tensor& left, const Shape& right) {
  return sum_to(matmul(left.transpose(-2, -1), gradient), right);
}

Tensors product_gradients(const Context<None, None>& c) {
  const std::size_t left_dims = c.shape(0).size();
  const std::size_t right_dims = c.shape(1).size();
  // A vector is a row on the left and a column on the right.
  Tensor gradient = c.grad();
  if (right_dims == 1) gradient = gradient.unsqueeze(-1);
  if (left_dims == 1) gradient = gradient.unsqueeze(-2);
  Shape left = c.shape(0);
  Shape right = c.shape(1);
  if (left_dims == 1) left.insert(left.begin(), 1);
  if (right_dims == 1) right.push_back(1);
  Tensors gradients(2);
  if (c.needs(0)) {
    const Tensor b = c.input(1);
    gradients[0] = left_gradient(gradient, right_dims == 1 ? b.unsqueeze(-1) : b, left);
    if (left_dims == 1) gradients[0] = gradients[0].squeeze(0);
  }
  if (c.needs(1)) {
    const Tensor a = c.input(0);
    gradients[1] = right_gradient(gradient, left_dims == 1 ? a.unsqueeze(0) : a, right);
    if (right_dims == 1) gradients[1] = gradients[1].squeeze(-1);
  }
  return gradients;
}

constexpr Op<> kMatmul{
    .name = "matmul",
    .meta = product_meta,
    .rules = [](Rules& r, Metas in,
                const None&) { r.einsum(product_of(in)).cut_all().multiplicative(); },
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::matmul(in[0], in[1]); },
    .backward = product_gradients,
    .saves = saves_inputs(0, 1)};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  return call(kMatmul, a, b);
}

}  // namespace dtrun::dtensor
