// The losses of classes, and mse_loss.
#include <algorithm>

#include "autograd/call.h"
#include "autograd/legal_layouts_of.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/class_rows.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "dtrun/tensor/ops/rows.h"
#include "move/cause.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::ClassCut;

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

[[noreturn]] void refuse_loss(std::string what, std::string why, std::string remedy) {
  throw Error(ErrorCode::kInvalidArgument, std::move(what), std::move(why), std::move(remedy));
}

std::string described(const Meta& meta) {
  return std::string(tensors::dtype_short_name(meta.dtype)) + tensors::shape_to_string(meta.shape);
}

/// Of scores [rows, classes] and targets [rows].
Meta losses_meta(const char* op, Metas in) {
  if (in[0].shape.size() != 2 || in[1].shape != Shape{in[0].shape[0]} ||
      in[1].dtype != DType::i64) {
    refuse_loss(
        std::string(op) + " of scores " + described(in[0]) + " and targets " + described(in[1]),
        "it takes scores [rows, classes] and i64 targets [rows]",
        "reshape() them, and to(DType::i64) the targets");
  }
  if (tensors::is_floating_point(in[0].dtype)) return {in[1].shape, in[0].dtype};
  refuse_loss(std::string(op) + " of scores " + described(in[0]), "it takes floating point numbers",
              "to(DType::f32)");
}

/// What each row's loss is: the number at its target; and back. They are each other's gradient.
struct Placed {
  std::int64_t ignored;
  std::int64_t classes;
};
void append_key(CallKey& key, const Placed& a) {
  key.push_back(a.ignored);
  key.push_back(a.classes);
}
using PlacedContext = Context<Placed, None>;
Tensor pick(const Tensor& scores, const Tensor& target, const Placed& a);

/// [rows] and targets -> [rows, classes], 0 beside the targets
constexpr Op<Placed> kPlaceClasses{
    .name = "place_classes",
    .meta =
        [](Metas in, const Placed& a) {
          return Meta{Shape{in[0].shape[0], a.classes}, in[0].dtype};
        },
    .rules =
        [](Rules& r, Metas, const Placed&) {
          r.indices({Rules::Indices{0}, Rules::Indices{0}}, Rules::Indices{0, sharding::kBroadcast})
              .cut_all();
        },
    .local = [](Locals in, const Placed& a, const None&,
                const Site&) { return tensors::place_classes(in[0], in[1], a.classes, a.ignored); },
    .backward = [](const PlacedContext& c) -> Tensors {
      return {pick(c.grad(), c.input(1), c.attributes()), Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

/// [rows, classes] and targets -> [rows], 0 where the target is ignored
constexpr Op<Placed> kPickClasses{
    .name = "pick_classes",
    .meta = [](Metas in, const Placed&) { return losses_meta("nll_loss", in); },
    .rules =
        [](Rules& r, Metas, const Placed&) {
          r.indices({Rules::Indices{0, sharding::kBroadcast}, Rules::Indices{0}}, Rules::Indices{0})
              .cut_all();
        },
    .local = [](Locals in, const Placed& a, const None&,
                const Site&) { return tensors::pick_classes(in[0], in[1], a.ignored); },
    .backward = [](const PlacedContext& c) -> Tensors {
      return {call(kPlaceClasses, c.grad(), c.input(1), c.attributes()), Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

Tensor pick(const Tensor& scores, const Tensor& target, const Placed& a) {
  return call(kPickClasses, scores, target, a);
}

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
        },
    .list = 2};

/// (softmax - one-hot) * gradient, in operations that have gradients.
Tensor cross_entropy_formula(const Context<Ignored, None>& c) {
  const Tensor logits = c.input(0), target = c.input(1);
  const std::int64_t ignored = c.attributes().index;
  const Tensor g = where(call(kCounted, target, Ignored{ignored}), c.grad(), zeros_like(c.grad()));
  return softmax(logits, 1) * g.unsqueeze(1) -
         call(kPlaceClasses, g, target, Placed{ignored, logits.size(1)});
}

constexpr Op<Ignored> kCrossEntropy{
    .name = "cross_entropy",
    .meta = [](Metas in, const Ignored&) { return losses_meta("cross_entropy", in); },
    .rules = loss_rules<0>,
    .local = [](Locals in, const Ignored& a, const None&,
                const Site&) { return tensors::cross_entropy_rows(in[0], in[1], a.index).loss; },
    .backward = [](const Context<Ignored, None>& c) -> Tensors {
      if (Graph::is_on()) return {cross_entropy_formula(c), Tensor()};
      const Tensor gradient = c.grad(), logits = c.input(0), target = c.input(1);
      const Tensor* const inputs[] = {&gradient, &logits, &target};
      return {call(kCrossEntropyBackward, std::span<const Tensor* const>(inputs), c.attributes()),
              Tensor()};
    },
    .saves = saves_inputs(0, 1),
    .list = 1};

/// Of scores whose classes are cut: what travels is the sum of each row's exponentials, not the
/// row.
ClassCut cut_of(const Spec& scores) {
  return {scores.local_box().offsets[1], scores.shape()[1]};
}

/// An infinite score has no share: nan, as a whole row has it.
LocalTensor unless_infinite(const LocalTensor& logsumexp) {
  return tensors::add(logsumexp, tensors::sub(logsumexp, logsumexp));
}

/// gradient of the losses, scores, targets, logsumexp of the rows -> that of the scores
constexpr Op<Ignored> kCutLossBackward{
    .name = "cut_cross_entropy_backward",
    .meta = [](Metas in, const Ignored&) { return in[1]; },
    .rules =
        [](Rules& r, Metas, const Ignored&) {
          r.indices({Rules::Indices{0}, Rules::Indices{0, 1}, Rules::Indices{0}, Rules::Indices{0}},
                    Rules::Indices{0, 1})
              .cut_all();
        },
    .local =
        [](Locals in, const Ignored& a, const None&, const Site& site) {
          return tensors::cross_entropy_rows_backward(in[0], in[1], in[2], unless_infinite(in[3]),
                                                      a.index, cut_of(site.inputs[1]));
        },
    .list = 2};

/// (softmax - one-hot) * gradient, in operations that leave the classes cut.
Tensor cut_loss_formula(const Context<Ignored, None>& c) {
  const Tensor scores = c.input(0), target = c.input(1);
  const std::int64_t ignored = c.attributes().index;
  const Tensor g = where(call(kCounted, target, Ignored{ignored}), c.grad(), zeros_like(c.grad()));
  const Tensor sums = logsumexp(scores, {1}, true), numbers = sums.detach();
  // As unless_infinite().
  const Tensor probability = exp(scores - (sums + (numbers - numbers)));
  return probability * g.unsqueeze(1) -
         call(kPlaceClasses, g, target, Placed{ignored, scores.size(1)});
}

/// scores, targets, logsumexp of the rows -> losses: a rank adds those whose class it has.
constexpr Op<Ignored> kCutLoss{
    .name = "cut_cross_entropy",
    .meta = [](Metas in, const Ignored&) { return losses_meta("cross_entropy", in); },
    .rules =
        [](Rules& r, Metas, const Ignored&) {
          r.indices({Rules::Indices{0, 1}, Rules::Indices{0}, Rules::Indices{0}}, Rules::Indices{0})
              .cut_all();
        },
    .local = [](Locals in, const Ignored& a, const None&, const Site& site) -> LocalTensor {
      const LocalTensor& scores = in[0];
      const ClassCut cut = cut_of(site.inputs[0]);
      const LocalTensor sums = tensors::pick_classes(
          unless_infinite(in[2]).unsqueeze(1).expand(scores.shape()), in[1], a.index, cut);
      return tensors::sub(sums, tensors::pick_classes(scores, in[1], a.index, cut))
          .to(scores.dtype());
    },
    .backward = [](const Context<Ignored, None>& c) -> Tensors {
      if (Graph::is_on()) return {cut_loss_formula(c), Tensor(), Tensor()};
      const Tensor g = c.grad(), scores = c.input(0), target = c.input(1), sums = c.input(2);
      const Tensor* const inputs[] = {&g, &scores, &target, &sums};
      return {call(kCutLossBackward, std::span<const Tensor* const>(inputs), c.attributes()),
              Tensor(), Tensor()};
    },
    .saves = {.inputs = 7},
    .list = 1};

bool has_cut_classes(const Tensor& scores) {
  return scores.is_distributed() &&
         std::ranges::any_of(scores.placements(), [](const Placement& placement) {
           return placement.is_shard() && placement.dim() == 1;
         });
}

/// A number of each row, where the scores of the row are.
Tensor beside_rows(const Tensor& scores, const Tensor& numbers) {
  Placements rows = scores.placements();
  for (Placement& placement : rows) {
    if (!placement.is_shard(0)) placement = Replicate();
  }
  ShardOrder order = scores.spec().shard_order();
  order.erase(1);
  return numbers.redistribute(rows, order);
}

Tensor losses_of_rows(const Tensor& scores, const Tensor& target, Ignored ignored) {
  if (!has_cut_classes(scores)) return call(kCrossEntropy, scores, target, ignored);
  const Tensor* const operands[] = {&scores, &target};
  const LegalLayoutsOf legal(kCrossEntropy, operands, ignored);
  const Tensor numbers = scores.detach();
  const Tensor sums = beside_rows(
      scores, logsumexp(scores.dtype() == DType::f64 ? numbers : numbers.to(DType::f32), {1}));
  const Tensor* const inputs[] = {&scores, &target, &sums};
  return call(kCutLoss, std::span<const Tensor* const>(inputs), ignored);
}

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

/// Scores [rows, classes, ...] as [rows, classes].
Tensor class_rows(const Tensor& scores) {
  if (scores.dim() == 2) return scores;
  const Tensor last = movedim(scores, 1, -1);
  const std::int64_t classes = scores.size(1);
  std::int64_t rows = scores.size(0);
  for (int d = 2; d < scores.dim(); ++d) rows *= scores.size(d);
  return last.reshape({rows, classes});
}

/// The weights of the rows' targets: what the mean is over. Undefined where nobody asks.
Tensor target_weights(const Tensor& target, const LossOptions& options, std::int64_t classes,
                      DType dtype) {
  if (!options.weight.defined()) {
    if (options.reduction != Reduction::mean) return {};
    return call(kCounted, target, Ignored{options.ignore_index}).to(dtype);
  }
  Tensor weight = options.weight.detach().to(dtype);
  // All of it before it stands beside each row.
  if (weight.is_distributed()) {
    const Cause cause = Cause::of_operand(2);
    weight = weight.redistribute(Placements(weight.placements().size(), Replicate()));
  }
  return pick(weight.unsqueeze(0).expand({target.size(0), classes}), target,
              {options.ignore_index, classes});
}

Tensor reduced_rows(const Tensor& losses, const Tensor& weights, const Shape& shape,
                    Reduction reduction) {
  if (reduction == Reduction::none) return losses.reshape(shape);
  if (reduction == Reduction::sum) return sum(losses);
  // Sums of halves may be beyond what halves hold.
  const DType dtype = losses.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return div(sum(losses.to(dtype)), sum(weights.to(dtype))).to(losses.dtype());
}

void check_weight(const char* op, const Tensor& scores, const LossOptions& options) {
  const Shape classes = {scores.size(scores.dim() == 1 ? 0 : 1)};
  if (options.weight.defined() &&
      (options.weight.shape() != classes || !tensors::is_floating_point(options.weight.dtype()))) {
    refuse_loss(std::string(op) + " with class weights " +
                    described({options.weight.shape(), options.weight.dtype()}),
                "there are " + std::to_string(classes[0]) + " classes",
                "a floating point number for each class");
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    refuse_loss(
        std::string(op) + " with label_smoothing " + std::to_string(options.label_smoothing),
        "it is a share of 1, between 0 and 1", "0.1, as is common");
  }
}

void check_scores(const char* op, const Tensor& scores, const Tensor& target) {
  Shape rows = scores.shape();
  if (!rows.empty()) rows.erase(rows.size() == 1 ? rows.begin() : rows.begin() + 1);
  if (!scores.shape().empty() && target.shape() == rows && target.dtype() == DType::i64) return;
  refuse_loss(std::string(op) + " of scores " + described({scores.shape(), scores.dtype()}) +
                  " and targets " + described({target.shape(), target.dtype()}),
              "it takes scores [rows, classes, ...] and i64 or u8 targets [rows, ...]",
              "reshape() them, movedim() the classes to dim 1, and to(DType::i64) the targets");
}

/// -sum(probability * log(softmax) * weight) over the classes; they are many, and half types hold
/// little.
Tensor probability_loss(const Tensor& scores, const Tensor& target, const LossOptions& options) {
  const Tensor logits = scores.dtype() == DType::f64 ? scores : scores.to(DType::f32);
  const int dim = logits.dim() == 1 ? 0 : 1;
  const auto classes = static_cast<double>(logits.size(dim));
  const double smoothing = options.label_smoothing;
  const Tensor probability =
      smoothing == 0 ? target : target * (1 - smoothing) + smoothing / classes;
  Tensor terms = log_softmax(logits, dim) * probability;
  if (options.weight.defined()) {
    Tensor weight = options.weight.detach().to(logits.dtype());
    for (int d = dim + 1; d < logits.dim(); ++d) weight = weight.unsqueeze(-1);
    terms = terms * weight;
  }
  const Tensor losses = neg(sum(terms, {dim}));
  if (options.reduction != Reduction::mean) {
    return reduced(losses, options.reduction).to(scores.dtype());
  }
  // Without any it is 0 / 0.
  const double rows = static_cast<double>(logits.numel()) / classes;
  return (sum(losses) / rows).to(scores.dtype());
}

/// Rows of scores, smoothed: (1 - s) of the target's, s of the mean over all classes.
Tensor smoothed_rows(const Tensor& scores, const Tensor& target, const Tensor& weights,
                     const LossOptions& options) {
  if (!tensors::is_floating_point(scores.dtype())) {
    refuse_loss("cross_entropy of " + std::string(tensors::dtype_name(scores.dtype())) + " scores",
                "they are floating point", "to(DType::f32)");
  }
  const DType compute = scores.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor log_probabilities = log_softmax(scores.to(compute), 1);
  const std::int64_t classes = scores.size(1);
  Tensor chosen = neg(pick(log_probabilities, target, {options.ignore_index, classes}));
  Tensor terms = log_probabilities;
  if (options.weight.defined()) {
    chosen = chosen * weights;
    terms = terms * options.weight.detach().to(log_probabilities.dtype());
  }
  const Tensor all = neg(sum(terms, {1}));
  const Tensor spread =
      where(call(kCounted, target, Ignored{options.ignore_index}), all, zeros_like(all));
  const double smoothing = options.label_smoothing;
  const Tensor losses =
      chosen * (1 - smoothing) + spread * (smoothing / static_cast<double>(classes));
  return losses.to(scores.dtype());
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const LossOptions& options) {
  return named_call(
      "cross_entropy",
      {{"input", logits}, {"target", target}, CallArgument::if_given("weight", options.weight)},
      [&] {
        if (target.dtype() == DType::u8)
          return cross_entropy(logits, target.to(DType::i64), options);
        const bool of_probabilities =
            tensors::is_floating_point(target.dtype()) && target.shape() == logits.shape();
        if (!of_probabilities) check_scores("cross_entropy", logits, target);
        check_weight("cross_entropy", logits, options);
        if (of_probabilities) return probability_loss(logits, target, options);
        if (logits.dim() == 1) {
          const Tensor loss = cross_entropy(logits.unsqueeze(0), target.unsqueeze(0), options);
          return loss.dim() == 0 ? loss : loss.squeeze(0);
        }
        const Tensor scores = class_rows(logits);
        Tensor rows = target.reshape({target.numel()});
        // Once, for all that asks for them.
        if (has_cut_classes(scores) && rows.is_distributed()) {
          const Cause cause = Cause::of_operand(1);
          rows = beside_rows(scores, rows);
        }
        const Tensor weights = target_weights(rows, options, scores.size(1), scores.dtype());
        Tensor losses;
        if (options.label_smoothing > 0) {
          losses = smoothed_rows(scores, rows, weights, options);
        } else {
          losses = losses_of_rows(scores, rows, {options.ignore_index});
          if (options.weight.defined()) losses = losses * weights;
        }
        return reduced_rows(losses, weights, target.shape(), options.reduction);
      });
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const LossOptions& options) {
  return named_call(
      "nll_loss",
      {{"input", log_probabilities},
       {"target", target},
       CallArgument::if_given("weight", options.weight)},
      [&] {
        if (target.dtype() == DType::u8)
          return nll_loss(log_probabilities, target.to(DType::i64), options);
        check_scores("nll_loss", log_probabilities, target);
        check_weight("nll_loss", log_probabilities, options);
        if (options.label_smoothing != 0) {
          refuse_loss("nll_loss with label_smoothing", "it is cross_entropy's", "cross_entropy()");
        }
        if (log_probabilities.dim() == 1) {
          const Tensor loss =
              nll_loss(log_probabilities.unsqueeze(0), target.unsqueeze(0), options);
          return loss.dim() == 0 ? loss : loss.squeeze(0);
        }
        const Tensor scores = class_rows(log_probabilities),
                     rows = target.reshape({target.numel()});
        const Tensor weights = target_weights(rows, options, scores.size(1), scores.dtype());
        Tensor losses = neg(pick(scores, rows, {options.ignore_index, scores.size(1)}));
        if (options.weight.defined()) losses = losses * weights;
        return reduced_rows(losses, weights, target.shape(), options.reduction);
      });
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return named_call("mse_loss", {{"input", input}, {"target", target}}, [&] {
    const Tensor difference = sub(input, target);
    return reduced(mul(difference, difference), reduction);
  });
}

}  // namespace dtrun::dtensor
