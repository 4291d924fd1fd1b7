// Normalizations, losses of classes, and what else networks are made of.
#include "dtrun/dtensor/ops/rows.h"
#include "dtensor/operators/operators.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/convolution.h"

namespace dtrun::dtensor::vectors {
namespace {

Reduction reduction_of(const Call& c) {
  const std::string name = c.text("reduction");
  return name == "none" ? Reduction::none : name == "sum" ? Reduction::sum : Reduction::mean;
}

Tensor input_or_none(const Call& c, std::size_t i) {
  return i < c.all().size() ? c.in(i) : Tensor();
}

LossOptions loss_options(const Call& c) {
  return {
      .reduction = reduction_of(c),
      .ignore_index = c.integer("ignore_index", -100),
      .weight = input_or_none(c, 2),
      .label_smoothing = c.has("label_smoothing") ? c.number("label_smoothing").to_double() : 0};
}

}  // namespace

void add_rows(Operators& table) {
  table["mse_loss"] = [](const Call& c) -> Tensors {
    return {mse_loss(c.in(0), c.in(1), reduction_of(c))};
  };
  table["cross_entropy"] = [](const Call& c) -> Tensors {
    return {cross_entropy(c.in(0), c.in(1), loss_options(c))};
  };
  table["nll_loss"] = [](const Call& c) -> Tensors {
    return {nll_loss(c.in(0), c.in(1), loss_options(c))};
  };
  table["sdpa"] = [](const Call& c) -> Tensors {
    return {scaled_dot_product_attention(c.in(0), c.in(1), c.in(2),
                                         {.is_causal = c.flag("is_causal")})};
  };
  table["conv2d"] = [](const Call& c) -> Tensors {
    return {conv2d(c.in(0), c.in(1), input_or_none(c, 2),
                   {.stride = c.integer("stride"), .padding = c.integer("padding")})};
  };
  table["layer_norm"] = [](const Call& c) -> Tensors {
    return {layer_norm(c.in(0), c.sizes("normalized_shape"), input_or_none(c, 1),
                       input_or_none(c, 2), c.number("eps").to_double())};
  };
  table["rms_norm"] = [](const Call& c) -> Tensors {
    return {rms_norm(c.in(0), c.sizes("normalized_shape"), input_or_none(c, 1),
                     c.number("eps").to_double())};
  };
}

}  // namespace dtrun::dtensor::vectors
