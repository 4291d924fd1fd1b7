// matmul: torch.matmul's shapes; and with something added.
#include <algorithm>
#include <cmath>

#include "autograd/call.h"
#include "dispatch/matmul_operation.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/matmul.h"
#include "ops/add_matmul.h"
#include "ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

sharding::Operation product_of(Metas in) {
  return sharding::matmul_operation({in[0].shape, in[0].dtype, {}}, {in[1].shape, in[1].dtype, {}},
                                    in[0].dtype);
}

[[noreturn]] void refuse_product(const char* op, Metas in, std::string why, std::string remedy) {
  const auto named = [](const Meta& meta) {
    return std::string(tensors::dtype_short_name(meta.dtype)) +
           tensors::shape_to_string(meta.shape);
  };
  std::string what = op + std::string(" of ") + named(in[0]);
  for (std::size_t i = 1; i < in.size(); ++i) what += " and " + named(in[i]);
  throw base::Error(base::ErrorCode::kInvalidArgument, std::move(what), std::move(why),
                    std::move(remedy));
}

Meta product_meta(Metas in, const None&) {
  if (in[0].dtype != in[1].dtype) {
    refuse_product("matmul", in, "the dtypes differ", "to() one of them");
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

/// Of the operands `first` and the one after.
template <typename A, typename V>
Tensors product_gradients(const Context<A, V>& c, std::size_t first) {
  const std::size_t second = first + 1;
  const std::size_t left_dims = c.shape(first).size();
  const std::size_t right_dims = c.shape(second).size();
  // A vector is a row on the left and a column on the right.
  Tensor gradient = c.grad();
  if (right_dims == 1) gradient = gradient.unsqueeze(-1);
  if (left_dims == 1) gradient = gradient.unsqueeze(-2);
  Shape left = c.shape(first);
  Shape right = c.shape(second);
  if (left_dims == 1) left.insert(left.begin(), 1);
  if (right_dims == 1) right.push_back(1);
  Tensors gradients(2);
  if (c.needs(first)) {
    const ResultWishScope wish(c.wish(first));
    const Tensor b = c.input(second);
    gradients[0] = left_gradient(gradient, right_dims == 1 ? b.unsqueeze(-1) : b, left);
    if (left_dims == 1) gradients[0] = gradients[0].squeeze(0);
  }
  if (c.needs(second)) {
    const ResultWishScope wish(c.wish(second));
    const Tensor a = c.input(first);
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
    .backward = [](const Context<None, None>& c) { return product_gradients(c, 0); },
    .saves = saves_inputs(0, 1),
    .weighed = Weighed::both_ways};

/// Whether both factors of a sum are finite: infinity times the parts of a number is no number.
struct Weights {
  Factor factor = Factor::finite;
};
void append_key(CallKey& key, const Weights& a) {
  key.push_back(static_cast<std::int64_t>(a.factor));
}

Meta sum_meta(Metas in, const Weights&) {
  if (in[1].dtype != in[2].dtype || in[0].dtype != in[1].dtype) {
    refuse_product("add_matmul", in, "the dtypes differ", "to() one of them");
  }
  Shape product = product_of(in.subspan(1)).output_shape;
  const std::size_t dims = in[0].shape.size();
  const auto fits = [&](std::size_t from_end) {
    const std::int64_t size = in[0].shape[dims - from_end];
    return size == 1 || size == product[product.size() - from_end];
  };
  bool broadcasts = dims <= product.size();
  for (std::size_t i = 1; broadcasts && i <= dims; ++i) broadcasts = fits(i);
  if (!broadcasts) {
    refuse_product(
        "add_matmul", in,
        "the first does not broadcast to the product, " + tensors::shape_to_string(product),
        "a sum that broadcasts to the product");
  }
  return {std::move(product), in[0].dtype};
}

/// As a product's. Where that is Partial, each rank adds a part of the sum. Of a product that each
/// rank has whole, the first one's counts beside the parts of a sum.
void sum_rules(Rules& r, Metas in, const Weights& weights) {
  sharding::Operation operation = product_of(in.subspan(1));
  const std::size_t dims = in[0].shape.size();
  sharding::Indices sum(operation.output.end() - static_cast<std::ptrdiff_t>(dims),
                        operation.output.end());
  for (std::size_t d = 0; d < dims; ++d) {
    if (in[0].shape[d] == 1) sum[d] = sharding::kBroadcast;
  }
  operation.inputs.insert(operation.inputs.begin(), {in[0].shape, in[0].dtype, std::move(sum)});
  r.einsum(std::move(operation)).cut_all().linear(1).linear(2).added(0);
  r.also({Partial(), Replicate(), Replicate()}, Partial());
  if (weights.factor == Factor::infinite) r.drop_partial();
}

/// Whether the result is added up along an axis where another rank's product counts.
bool is_counted_elsewhere(const Site& site) {
  if (!site.output || site.output.is_outside()) return false;
  const Layout& output = site.output.layout();
  for (std::size_t axis = 0; axis < output.axes(); ++axis) {
    const bool is_whole =
        site.inputs[1].layout().is_replicate(axis) && site.inputs[2].layout().is_replicate(axis);
    if (is_whole && output.is_partial(axis) && site.output.mesh().coordinate()[axis] != 0)
      return true;
  }
  return false;
}

LocalTensor sum_of_parts(Locals in, const Weights&, const tensors::ProductSum& factors,
                         const Site& site) {
  if (!is_counted_elsewhere(site)) return tensors::add_matmul(in[0], in[1], in[2], factors);
  const Shape& shape = site.output.local_box().shape;
  // 0 times nan is 0 here, as in add_matmul.
  if (factors.beta.to_double() == 0) return tensors::zeros(shape, {in[0].dtype(), in[0].device()});
  return tensors::mul(in[0], factors.beta).expand(shape).clone();
}

Tensor times(const Tensor& a, Scalar factor) {
  return !a.defined() || factor.to_double() == 1 ? a : mul(a, factor);
}

Tensors sum_gradients(const Context<Weights, tensors::ProductSum>& c) {
  const Tensors of_product = product_gradients(c, 1);
  const tensors::ProductSum& factors = c.numbers();
  Tensor of_sum;
  if (c.needs(0)) of_sum = times(sum_to(c.grad(), c.shape(0)), factors.beta);
  return {of_sum, times(of_product[0], factors.alpha), times(of_product[1], factors.alpha)};
}

constexpr Op<Weights, tensors::ProductSum> product_sum(std::string_view name) {
  return {.name = name,
          .meta = sum_meta,
          .rules = sum_rules,
          .local = sum_of_parts,
          .backward = sum_gradients,
          .saves = saves_inputs(1, 2),
          .weighed = Weighed::both_ways};
}
/// By AddMatmulFor.
constexpr Op<Weights, tensors::ProductSum> kAddMatmul[] = {
    product_sum("addmm"), product_sum("baddbmm"), product_sum("linear")};

/// PyTorch truncates a product's factors, where it refuses others.
Scalar factor_for(DType dtype, Scalar factor) {
  if (tensors::is_floating_point(dtype) || !factor.is_floating()) return factor;
  return static_cast<std::int64_t>(factor.to_double());
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  return call(kMatmul, a, b);
}

Tensor add_matmul(AddMatmulFor as, const Tensor& sum, const Tensor& a, const Tensor& b,
                  tensors::ProductSum factors) {
  factors = {factor_for(a.dtype(), factors.beta), factor_for(a.dtype(), factors.alpha)};
  const bool is_finite =
      !std::isinf(factors.beta.to_double()) && !std::isinf(factors.alpha.to_double());
  const Tensor* const inputs[] = {&sum, &a, &b};
  return call(kAddMatmul[static_cast<std::size_t>(as)], std::span<const Tensor* const>(inputs),
              Weights{is_finite ? Factor::finite : Factor::infinite}, factors);
}

}  // namespace dtrun::dtensor
