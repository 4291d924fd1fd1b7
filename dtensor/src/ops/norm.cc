// layer_norm and rms_norm: fused kernels, forward and backward, of whole rows. A gradient that is
// to be part of a graph itself is a formula of public operations instead.
#include <limits>

#include "autograd/call.h"
#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/tensor/ops/rows.h"
#include "ops/norm_of_cut.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

struct NormDims {
  NormForm form;
  int dims;  ///< the last ones
};
void append_key(CallKey& key, const NormDims& a) {
  key.push_back(static_cast<std::int64_t>(a.form));
  key.push_back(a.dims);
}
struct NormEps {
  double eps;
};
using NormContext = Context<NormDims, NormEps>;

tensors::NormOptions norm_options(const NormDims& a, const NormEps& v) {
  tensors::NormOptions options;
  options.eps = v.eps;
  options.dims = a.dims;
  return options;
}

tensors::Normalized run_norm(const LocalTensor& x, const NormDims& a,
                             const tensors::NormOptions& options) {
  return a.form == NormForm::layer ? tensors::layer_norm(x, options)
                                   : tensors::rms_norm(x, options);
}

/// An index for each of the outer dims; those that are normalized are whole.
Rules::Indices outer_indices(const Shape& shape, int dims) {
  Rules::Indices indices = Rules::each_dim(shape);
  std::fill(indices.end() - dims, indices.end(), sharding::kBroadcast);
  return indices;
}

/// As many inputs of the tensor's shape as `rows`, then weight and bias; the result is like the
/// tensor.
template <std::size_t kRows>
void norm_rules(Rules& r, Metas in, const NormDims& a) {
  const Rules::Indices each = outer_indices(in[0].shape, a.dims);
  std::vector<Rules::Indices> inputs(kRows, each);
  inputs.resize(in.size(), Rules::Indices(static_cast<std::size_t>(a.dims), sharding::kBroadcast));
  r.indices(std::move(inputs), each).cut_all();
}

/// Where the one pass over the rows leaves the sums of this rank's: they are results, too.
struct NormSums {
  double eps;
  bool has_bias;
  tensors::NormGradients* gradients;
};

/// gradient, x, [weight] -> that of x
constexpr Op<NormDims, NormSums> kNormBackward{
    .name = "norm_backward",
    .meta = [](Metas in, const NormDims&) { return in[1]; },
    .rules = norm_rules<2>,
    .local = [](Locals in, const NormDims& a, const NormSums& v, const Site&) -> LocalTensor {
      tensors::NormOptions options = norm_options(a, {v.eps});
      if (in.size() > 2) options.weight = in[2];
      // Its gradient is asked for, not its numbers.
      if (v.has_bias) options.bias = in[2];
      *v.gradients = a.form == NormForm::layer ? tensors::layer_norm_backward(in[0], in[1], options)
                                               : tensors::rms_norm_backward(in[0], in[1], options);
      return v.gradients->a;
    }};

/// What each rank has summed over its rows of `rows`, as one tensor: a sum over the axes that cut
/// them.
Tensor summed(const LocalTensor& local, const Tensor& rows) {
  if (!rows.is_distributed()) return local;
  Placements placements;
  for (const Placement& placement : rows.placements()) {
    placements.push_back(placement.is_shard() ? Partial() : Replicate());
  }
  return Tensor(make_spec(rows.device_mesh(), placements, local.shape(), local.dtype()), local);
}

std::vector<int> last_dims(const NormContext& c) {
  std::vector<int> dims;
  for (int d = -c.attributes().dims; d < 0; ++d) dims.push_back(d);
  return dims;
}

/// The same gradients in operations that have some: of half types in f32.
Tensors norm_formula(const NormContext& c) {
  const std::vector<int> dims = last_dims(c);
  const DType compute = c.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
  const Tensor x = c.input(0).to(compute), g = c.grad().to(compute);
  const bool centered = c.attributes().form == NormForm::layer;
  const Tensor deviation = centered ? x - mean(x, dims, true) : x;
  const Tensor scale = rsqrt(mean(square(deviation), dims, true) + c.numbers().eps);
  const Tensor normalized = deviation * scale;
  const Tensor gw = c.inputs() > 1 ? g * c.input(1).to(compute) : g;
  Tensor back = gw - normalized * mean(gw * normalized, dims, true);
  if (centered) back = back - mean(gw, dims, true);
  Tensors gradients = {(back * scale).to(c.dtype(0))};
  if (c.inputs() > 1) gradients.push_back(sum_to(g * normalized, c.shape(1)).to(c.dtype(1)));
  if (c.inputs() > 2) gradients.push_back(sum_to(g, c.shape(2)).to(c.dtype(2)));
  return gradients;
}

CutNorm cut_norm(const NormDims& a, const NormEps& v) {
  return {a.form, a.dims, v.eps};
}

Tensors gradients_of_cut(const NormContext& c) {
  const Tensor weight = c.inputs() > 1 ? c.input(1) : Tensor();
  const CutNormGradients found =
      norm_gradients_of_cut(c.grad(), c.input(0), cut_norm(c.attributes(), c.numbers()), weight);
  Tensors gradients = {found.x};
  if (c.inputs() > 1)
    gradients.push_back(sum_to(found.gradient * found.normalized, c.shape(1)).to(c.dtype(1)));
  if (c.inputs() > 2) gradients.push_back(sum_to(found.gradient, c.shape(2)).to(c.dtype(2)));
  return gradients;
}

Tensors norm_gradients(const NormContext& c) {
  if (Graph::is_on()) return norm_formula(c);
  // The gradient lies as the result did.
  if (has_cut_rows(c.grad(), c.attributes().dims)) return gradients_of_cut(c);
  const Tensor g = c.grad(), x = c.input(0);
  const Tensor weight = c.inputs() > 1 ? c.input(1) : Tensor();
  const Tensor* const inputs[] = {&g, &x, &weight};
  tensors::NormGradients found;
  const Tensor of_x =
      call(kNormBackward, std::span<const Tensor* const>(inputs, weight.defined() ? 3 : 2),
           c.attributes(), NormSums{c.numbers().eps, c.inputs() > 2, &found});
  Tensors gradients = {of_x};
  if (c.inputs() > 1) gradients.push_back(summed(found.weight, of_x).to(c.dtype(1)));
  if (c.inputs() > 2) gradients.push_back(summed(found.bias, of_x).to(c.dtype(2)));
  return gradients;
}

/// x, [weight, [bias]]
constexpr Op<NormDims, NormEps> row_norm_op(std::string_view name) {
  return {.name = name,
          .meta = [](Metas in, const NormDims&) { return in[0]; },
          .rules = norm_rules<1>,
          .local = [](Locals in, const NormDims& a, const NormEps& v, const Site&) -> LocalTensor {
            tensors::NormOptions options = norm_options(a, v);
            if (in.size() > 1) options.weight = in[1];
            if (in.size() > 2) options.bias = in[2];
            return run_norm(in[0], a, options).output;
          },
          .backward = norm_gradients,
          .saves = saves_inputs(0, 1),
          .weighed = Weighed::there_and_back};
}
constexpr Op<NormDims, NormEps> kLayerNorm = row_norm_op("layer_norm"),
                                kRmsNorm = row_norm_op("rms_norm");

/// @param inputs x, [weight, [bias]]
Tensor normed(std::span<const Tensor* const> inputs, const NormDims& dims, const NormEps& eps) {
  const Tensor& x = *inputs[0];
  const Op<NormDims, NormEps>& op = dims.form == NormForm::layer ? kLayerNorm : kRmsNorm;
  if (!has_cut_rows(x, dims.dims)) return call(op, inputs, dims, eps);
  // The gradient of a weight that is whole needs another collective where rows are cut.
  const bool has_whole_weight =
      inputs.size() > 1 && !is_cut_along(*inputs[1], last_dims_of(*inputs[1], dims.dims));
  if (has_whole_weight && comes_sooner_whole(x, last_dims_of(x, dims.dims)))
    return call(op, inputs, dims, eps);
  const LegalLayoutsOf legal(op, inputs, dims);
  const Tensor none;
  const Tensor& weight = inputs.size() > 1 ? *inputs[1] : none;
  const Tensor& bias = inputs.size() > 2 ? *inputs[2] : none;
  return recorded(op, inputs, norm_of_cut(x, cut_norm(dims, eps), weight, bias), dims, eps);
}

void check_norm(const char* op, const Tensor& a, const Shape& normalized, const Tensor& parameter) {
  const std::size_t dims = normalized.size();
  if (!tensors::is_floating_point(a.dtype())) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " of a tensor of " + std::string(tensors::dtype_name(a.dtype())),
                "it takes floating point numbers", "to(DType::f32)");
  }
  if (dims == 0 || dims > a.shape().size() ||
      Shape(a.shape().end() - static_cast<int>(dims), a.shape().end()) != normalized) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " of a tensor of shape " + tensors::shape_to_string(a.shape()) +
                    " over " + tensors::shape_to_string(normalized),
                "its last dims are others", "give the sizes of the dims to normalize");
  }
  if (parameter.defined() && parameter.shape() != normalized) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(op) + " over " + tensors::shape_to_string(normalized) +
                    " with a weight or bias of shape " +
                    tensors::shape_to_string(parameter.shape()),
                "they have the shape that is normalized", "reshape() it to that");
  }
}

void check_dtype(const Tensor& a, const Tensor& parameter) {
  if (!parameter.defined() || parameter.dtype() == a.dtype()) return;
  const bool is_half = a.dtype() == DType::f16 || a.dtype() == DType::bf16;
  if (is_half && parameter.dtype() == DType::f32) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "layer_norm of a tensor of " + std::string(tensors::dtype_name(a.dtype())) +
          " with a weight or bias of " + std::string(tensors::dtype_name(parameter.dtype())),
      is_half ? "they are of the tensor's dtype, or float32" : "they are of the tensor's dtype",
      "to()");
}

}  // namespace

Tensor layer_norm(const Tensor& a, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return named_call(
      "layer_norm",
      {{"input", a},
       CallArgument::if_given("weight", weight),
       CallArgument::if_given("bias", bias)},
      [&] {
        check_norm("layer_norm", a, normalized_shape, weight);
        check_norm("layer_norm", a, normalized_shape, bias);
        check_dtype(a, weight);
        check_dtype(a, bias);
        const NormDims dims{NormForm::layer, static_cast<int>(normalized_shape.size())};
        const NormEps numbers{eps};
        const Tensor* const inputs[] = {&a, &weight, &bias};
        if (!weight.defined()) {
          const Tensor normalized = normed({inputs, 1}, dims, numbers);
          return bias.defined() ? add(normalized, bias).to(a.dtype()) : normalized;
        }
        return normed({inputs, bias.defined() ? 3UL : 2UL}, dims, numbers);
      });
}

Tensor rms_norm(const Tensor& a, const Shape& normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  return named_call("rms_norm", {{"input", a}, CallArgument::if_given("weight", weight)}, [&] {
    check_norm("rms_norm", a, normalized_shape, weight);
    const NormDims dims{NormForm::root_mean_square, static_cast<int>(normalized_shape.size())};
    const double smallest = a.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon();
    const NormEps numbers{eps.value_or(smallest)};
    const Tensor* const inputs[] = {&a, &weight};
    return normed({inputs, weight.defined() ? 2UL : 1UL}, dims, numbers);
  });
}

}  // namespace dtrun::dtensor
