#include "dtrun/dtensor/ops/rows.h"

#include "dispatch/call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "dtrun/tensor/ops/rows.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

struct RowDim {
  int dim;
};
void append_key(CallKey& key, const RowDim& a) {
  key.push_back(a.dim);
}

Meta row_meta(const char* op, Metas in) {
  if (tensors::is_floating_point(in[0].dtype)) return in[0];
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of a tensor of " + std::string(tensors::dtype_name(in[0].dtype)),
              "it takes floating point numbers", "to(DType::f32)");
}

void whole_rows(Rules& r, Metas, const RowDim& a) {
  r.all_but(a.dim).cut_all();
}

constexpr Op<RowDim> kSoftmaxBackward{
    .name = "softmax_backward",
    .meta = [](Metas in, const RowDim&) { return in[0]; },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::softmax_backward(in[0], in[1], a.dim); },
    // g' = y (g - sum(g y)), linear in g.
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      const Tensor g = c.input(0), y = c.input(1), h = c.grad();
      const std::vector<int> dims = {c.attributes().dim};
      const Tensor hy = sum(h * y, dims, true);
      return {c.needs(0) ? y * (h - hy) : Tensor(),
              c.needs(1) ? h * (g - sum(g * y, dims, true)) - g * hy : Tensor()};
    },
    .saves = saves_inputs(0, 1)};

constexpr Op<RowDim> kSoftmax{
    .name = "softmax",
    .meta = [](Metas in, const RowDim&) { return row_meta("softmax", in); },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::softmax(in[0], a.dim); },
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      return {call(kSoftmaxBackward, c.grad(), c.output(), c.attributes())};
    },
    .saves = saves_output()};

/// Of log-probabilities softmax is exp.
Tensor probabilities(const Tensor& log_probabilities, int dim) {
  return softmax(log_probabilities, dim);
}

constexpr Op<RowDim> kLogSoftmaxBackward{
    .name = "log_softmax_backward",
    .meta = [](Metas in, const RowDim&) { return in[0]; },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::log_softmax_backward(in[0], in[1], a.dim); },
    // g' = g - exp(y) sum(g)
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      const int dim = c.attributes().dim;
      const Tensor p = probabilities(c.input(1), dim), h = c.grad();
      return {c.needs(0) ? h - sum(h * p, {dim}, true) : Tensor(),
              c.needs(1) ? neg(h * p * sum(c.input(0), {dim}, true)) : Tensor()};
    },
    .saves = saves_inputs(0, 1)};

constexpr Op<RowDim> kLogSoftmax{
    .name = "log_softmax",
    .meta = [](Metas in, const RowDim&) { return row_meta("log_softmax", in); },
    .rules = whole_rows,
    .local = [](Locals in, const RowDim& a, const None&,
                const Site&) { return tensors::log_softmax(in[0], a.dim); },
    .backward = [](const Context<RowDim, None>& c) -> Tensors {
      return {call(kLogSoftmaxBackward, c.grad(), c.output(), c.attributes())};
    },
    .saves = saves_output()};

RowDim row_dim(const Tensor& a, int dim) {
  if (a.shape().empty() && (dim == 0 || dim == -1)) return {0};
  return {tensors::normalize_dim(dim, a.shape().size())};
}

struct Ignored {
  std::int64_t index;
};
void append_key(CallKey& key, const Ignored& a) {
  key.push_back(a.index);
}

/// [rows, classes] and [rows] -> [rows]; more inputs of [rows] come first.
template <std::size_t kLogits>
void loss_rules(Rules& r, Metas in, const Ignored&) {
  std::vector<Rules::Indices> inputs(in.size(), Rules::Indices{0});
  inputs[kLogits] = {0, sharding::kBroadcast};
  r.indices(std::move(inputs),
            kLogits == 0 ? Rules::Indices{0} : Rules::Indices{0, sharding::kBroadcast})
      .cut_all();
}

/// Gradient of the losses, logits, target -> that of the logits.
constexpr Op<Ignored> kCrossEntropyBackward{
    .name = "cross_entropy_backward",
    .meta = [](Metas in, const Ignored&) { return in[1]; },
    .rules = loss_rules<1>,
    .local =
        [](Locals in, const Ignored& a, const None&, const Site&) {
          const LocalTensor logsumexp =
              tensors::cross_entropy_rows(in[1], in[2], a.index).logsumexp;
          return tensors::cross_entropy_rows_backward(in[0], in[1], in[2], logsumexp, a.index);
        }};

constexpr Op<Ignored> kCrossEntropy{
    .name = "cross_entropy",
    .meta =
        [](Metas in, const Ignored&) {
          if (in[0].shape.size() == 2 && in[1].shape == Shape{in[0].shape[0]} &&
              in[1].dtype == DType::i64) {
            return Meta{in[1].shape, row_meta("cross_entropy", in).dtype};
          }
          throw Error(ErrorCode::kInvalidArgument,
                      "cross_entropy of scores of shape " + tensors::shape_to_string(in[0].shape) +
                          " and targets of " + std::string(tensors::dtype_short_name(in[1].dtype)) +
                          tensors::shape_to_string(in[1].shape),
                      "it takes scores [rows, classes] and i64 targets [rows]");
        },
    .rules = loss_rules<0>,
    .local = [](Locals in, const Ignored& a, const None&,
                const Site&) { return tensors::cross_entropy_rows(in[0], in[1], a.index).loss; },
    .backward = [](const Context<Ignored, None>& c) -> Tensors {
      if (Graph::is_on()) {
        throw Error(ErrorCode::kUnavailable, "a second derivative of cross_entropy",
                    "its gradient has no gradient yet", "log_softmax() and sum()");
      }
      const Tensor gradient = c.grad(), logits = c.input(0), target = c.input(1);
      const Tensor* const inputs[] = {&gradient, &logits, &target};
      return {call(kCrossEntropyBackward, std::span<const Tensor* const>(inputs), c.attributes()),
              Tensor()};
    },
    .saves = saves_inputs(0, 1)};

/// Which targets count.
constexpr Op<Ignored> kCounted{
    .name = "counted_targets",
    .meta =
        [](Metas in, const Ignored&) {
          return Meta{in[0].shape, DType::boolean};
        },
    .rules = [](Rules& r, Metas, const Ignored&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const Ignored& a, const None&,
                const Site&) { return tensors::ne(in[0], a.index); }};

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

}  // namespace

Tensor softmax(const Tensor& a, int dim) {
  return call(kSoftmax, a, row_dim(a, dim));
}

Tensor log_softmax(const Tensor& a, int dim) {
  return call(kLogSoftmax, a, row_dim(a, dim));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, LossOptions options) {
  if (logits.dim() == 1 && target.dim() == 0) {
    return cross_entropy(logits.unsqueeze(0), target.unsqueeze(0), options).sum();
  }
  const Tensor losses = call(kCrossEntropy, logits, target, Ignored{options.ignore_index});
  if (options.reduction != Reduction::mean) return reduced(losses, options.reduction);
  // The mean is over those that count.
  const Tensor counted = call(kCounted, target, Ignored{options.ignore_index});
  // Sums of halves may be beyond what halves hold.
  const DType dtype = losses.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return div(sum(losses.to(dtype)), sum(counted).to(dtype)).to(losses.dtype());
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  const Tensor difference = sub(input, target);
  return reduced(mul(difference, difference), reduction);
}

Tensor linear(const Tensor& a, const Tensor& weight, const Tensor& bias) {
  const Tensor product = matmul(a, weight.t());
  return bias.defined() ? add(product, bias) : product;
}

}  // namespace dtrun::dtensor
